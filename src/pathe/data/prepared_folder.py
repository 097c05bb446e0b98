"""The folder that `pathe prepare` writes: a manifest and memory-mapped arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from torch import Tensor

from pathe.core.errors import DataError
from pathe.core.files import read_json, write_json
from pathe.core.types import Progress
from pathe.data.array_files import mapped, mapped_tensor, mapped_text
from pathe.data.columns import ReadOptions, ReadReport
from pathe.data.names import Names
from pathe.data.split_files import SPLITS
from pathe.data.vocabulary import Vocabulary

FORMAT, VERSION = "pathe prepared graph", 1
MANIFEST = "prepared.json"
WORK = "unfinished"  # the folder inside that holds what is needed to continue
_BLOCK = 16 << 20
_AT_OPENING = 32 << 20  # bytes of files whose content is checked whenever they are opened


@dataclass(frozen=True, eq=False)
class PreparedFolder:
    """An open folder: its vocabularies and splits, and other arrays by name."""

    path: Path
    about: dict[str, Any]
    entities: Vocabulary
    relations: Vocabulary
    splits: dict[str, Tensor]

    def tensor(self, name: str) -> Tensor:
        """Returns an array as a tensor over its memory map."""
        try:
            return mapped_tensor(self.path / f"{name}.npy")
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(self.path, f"{name}.npy can't be opened ({error})") from error

    def holds(self, name: str) -> bool:
        """Whether the folder has an array of this name."""
        return f"{name}.npy" in self.about["files"]

    def report(self) -> ReadReport:
        """Returns what was read and left out when the folder was made."""
        told = self.about["report"]
        prefixes = [(prefix, iri) for prefix, iri in told["prefixes"]]
        return ReadReport(**{**told, "prefixes": prefixes})


def is_prepared(folder: Path) -> bool:
    """Whether `pathe prepare` has written this folder, or has begun to."""
    return (folder / MANIFEST).exists() or (folder / WORK).is_dir()


def open_folder(folder: Path, options: ReadOptions | None = None) -> PreparedFolder:
    """Opens a prepared folder; raises DataError if it is unfinished, damaged or too new or old.

    Of a large one, only the sizes of the files are compared with the manifest.
    """
    options = options or ReadOptions()
    unfit = ("columns", "header", "delimiter", "language", "base_iri", "sparql_query")
    options.reject(unfit, f"{folder} is a prepared graph")
    about = read_manifest(folder)
    if sum(file["bytes"] for file in about["files"].values()) <= _AT_OPENING:
        check_content(folder, lambda done, total: None)
    try:
        prefixes = [(str(prefix), str(iri)) for prefix, iri in about["prefixes"]]
        prefixes = list(dict.fromkeys([*prefixes, *options.prefixes]))
        names = Names(tuple(prefixes), base=about["base"])
        if about["labels"]:
            labelled, labels, by_label = (
                mapped_text(folder / stem) for stem in ("labelled", "labels", "labels_sorted")
            )
            names = replace(names, labelled=labelled, labels=labels)
            order = pa.array(mapped(folder / "label_order.npy"))
            vars(names)["_by_label"] = order, by_label  # it is sorted already
        return PreparedFolder(
            folder,
            about,
            Vocabulary.of_sorted(mapped_text(folder / "entities"), "entity", names),
            Vocabulary.of_sorted(mapped_text(folder / "relations"), "relation", names),
            {split: mapped_tensor(folder / f"{split}.npy") for split in SPLITS},
        )
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise _damaged(folder, f"can't be opened ({error})") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a complete folder whose files have the right sizes."""
    path = folder / MANIFEST
    if not path.exists():
        raise DataError(
            f"{folder}: preparing this graph was interrupted. Run the same `pathe prepare` "
            "command again: it continues where it stopped."
        )
    try:
        about = read_json(path)
        form, version = about["format"], about["format_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{MANIFEST} can't be read ({error})") from error
    if (form, version) != (FORMAT, VERSION):
        raise DataError(
            f"{folder}: expected a {FORMAT} of version {VERSION}, found {form} of version "
            f"{version}, written by PathE {about.get('pathe_version')}. Prepare the graph again."
        )
    if about.get("digest") != _digest_of(about):
        raise _damaged(folder, f"{MANIFEST} has been changed")
    for name, file in about["files"].items():
        own = folder / name
        size = own.stat().st_size if own.is_file() else None
        if size != file["bytes"]:
            found = "is missing" if size is None else f"has {size:,}"
            raise _damaged(folder, f"{name} should have {file['bytes']:,} bytes, it {found}")
    return dict(about)


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(
        f"{folder}: the prepared graph is damaged: {what}. Delete the folder and prepare the "
        "graph again."
    )


def write_manifest(folder: Path, about: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Writes the manifest: what is given, and the size and digest of every array."""
    import pathe

    sizes = {path: path.stat().st_size for path in sorted(folder.glob("*.npy"))}
    files, done = {}, 0
    for path, size in sizes.items():
        progress(done, sum(sizes.values()))
        done += size
        files[path.name] = {"bytes": size, "digest": file_digest(path)}
    start = {"format": FORMAT, "format_version": VERSION, "pathe_version": pathe.__version__}
    about = start | about | {"files": files}
    about = json.loads(json.dumps(about))
    about["digest"] = _digest_of(about)
    write_json(folder / MANIFEST, about)
    return about


def check_content(folder: Path, progress: Progress) -> None:
    """Raises DataError unless every file has the content that the manifest says."""
    files = read_manifest(folder)["files"]
    total, done = sum(file["bytes"] for file in files.values()), 0
    for name, file in files.items():
        progress(done, total)
        done += file["bytes"]
        if file_digest(folder / name) != file["digest"]:
            raise _damaged(folder, f"the content of {name} has changed")


def file_digest(path: Path) -> str:
    """Returns 32 hex digits of a file's content."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _digest_of(about: dict[str, Any]) -> str:
    """Returns the digest of a manifest, and so of all content."""
    rest = {key: value for key, value in about.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=16).hexdigest()
