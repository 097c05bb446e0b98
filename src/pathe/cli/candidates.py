"""Options that choose entities, and which of them may be answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from pathe.cli.options import option
from pathe.cli.output import tell
from pathe.core.errors import PatheError, UnknownNameError

if TYPE_CHECKING:
    from pathe.core.types import Query
    from pathe.predict.candidates import Candidates, QueryCandidates
    from pathe.predict.predictor import Predictor


@dataclass(frozen=True)
class EntityOptions:
    """Options that choose entities: by type and by name."""

    type: str | None = option(None, "Only entities of this type, e.g. [cyan]Country[/].")
    types: Path | None = option(
        None,
        "The types of entities: a .tsv or .csv of entity and type. Default: from the graph.",
    )
    type_relation: str | None = option(
        None,
        "The relation that gives types. Default: one named rdf:type, type, instance of or isa.",
    )
    among: Path | None = option(
        None,
        "Only the entities in this file: one per line, or the first column of a .tsv or .csv.",
    )
    exclude: list[str] | None = option(
        None, "Exclude this entity, or the entities in this file; repeatable."
    )

    def choose(self, p: Predictor, skip: bool = False) -> Candidates:
        """Returns which entities; `skip` skips unknown names in files."""
        if self.types is not None and self.type_relation is not None:
            raise PatheError("Give --types or --type-relation, not both.")
        if self.types is not None:
            from pathe.data.row_files import read_types

            p.use_types(read_types(self.types))
        if self.type_relation is not None:
            p.use_types(self.type_relation)
        which: Candidates = {}
        if self.type is not None:
            which["type"] = self.type
        if self.among is not None:
            which["among"] = entities_in(p, self.among, skip)
        if self.exclude is not None:
            which["exclude"] = [name for one in self.exclude for name in excluded(p, one, skip)]
        return which


@dataclass(frozen=True)
class CandidateOptions(EntityOptions):
    """The entities to choose from."""

    panel: ClassVar[str] = "Candidates"

    @property
    def given(self) -> list[str]:
        """The names of the options that were given."""
        names = (field.name for field in fields(self) if getattr(self, field.name) is not None)
        return [f"--{name.replace('_', '-')}" for name in names]


@dataclass(frozen=True)
class QueryCandidateOptions(CandidateOptions):
    """The entities to rank as answers."""

    plausible: bool | None = option(
        None,
        "Exclude implausible answers: entities unlike any known answer of the relation, and "
        "relations that no similar entity has. On unless --type or --among is given.",
        "--plausible/--no-plausible",
    )

    def useless(self, query: Query) -> str:
        """Returns the options that can't apply to a query: if it asks for no head or tail."""
        head, relation, tail = query
        if head is None or tail is None:
            return ""
        return ", ".join(o for o in self.given if relation is not None or o != "--plausible")

    def choose(self, p: Predictor, skip: bool = False) -> QueryCandidates:
        """Returns the candidates; `skip` skips unknown names in files."""
        which = cast("QueryCandidates", super().choose(p, skip))
        if self.plausible is not None:
            which["plausible"] = self.plausible
        return which


def excluded(p: Predictor, name: str, skip: bool) -> Iterator[str]:
    """Yields an entity, or those in a file."""
    if p.entity_names.find(name) is None and Path(name).is_file():
        yield from entities_in(p, Path(name), skip)
    else:
        yield p.entity_names.exact(name)


def entities_in(p: Predictor, path: Path, skip: bool) -> list[str]:
    """Returns the entities in a file; unknown ones are skipped, or an error with the line."""
    from pathe.data.row_files import read_names

    known, n_skipped = [], 0
    for number, name in read_names(path, p.entity_names):
        try:
            known.append(p.entity_names.exact(name))
        except UnknownNameError as error:
            if not skip:
                raise UnknownNameError(f"{path}, line {number}: {error}") from None
            n_skipped += 1
    if n_skipped:
        tell(f"{path}: {n_skipped:,} unknown name{'s' * (n_skipped > 1)} skipped")
    return known
