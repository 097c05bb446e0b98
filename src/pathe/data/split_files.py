"""Which files of a folder hold which split: one file per split, or several parts."""

from __future__ import annotations

from pathlib import Path

from pathe.core.errors import DataError
from pathe.data.columns import split_suffix

SPLITS = ("train", "valid", "test")
_NOTES = ("readme", "license", "licence", "notice", "citation", "changelog")
_ALIASES = {"training": "train", "dev": "valid", "validation": "valid", "testing": "test"}


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each split: those named train, valid (or dev, validation) and test.

    A subfolder of such a name holds parts of the split.
    """
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for stem, paths in stems(folder).items():
        found.get(_split_of(stem), []).extend(paths)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and _split_of(path.name.lower()) in found and part_files(path):
            found[_split_of(path.name.lower())].append(path)
    only = {split: only_file(folder, split, paths) for split, paths in found.items() if paths}
    return {split: part_files(path) if path.is_dir() else [path] for split, path in only.items()}


def _split_of(stem: str) -> str:
    return _ALIASES.get(stem, stem)


def part_files(folder: Path) -> list[Path]:
    """Returns the files of a folder of parts, as part-00000.parquet; none if it is another kind.

    The parts have one format, compressed or not. Files whose names start with . or _ don't count,
    nor do notes such as README.md.
    """
    paths = _shown(folder)
    formats = {split_suffix(path)[1] for path in paths}
    return paths if len(formats) == 1 and "" not in formats else []


def readable_files(folder: Path) -> list[Path]:
    """Returns the files of a folder in a format for triples, so no notes or logs."""
    return [path for path in _shown(folder) if split_suffix(path)[1]]


def _shown(folder: Path) -> list[Path]:
    paths = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [path for path in paths if not path.name.startswith((".", "_")) and not _is_note(path)]


def _is_note(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith(".md") or (Path(name).stem in _NOTES and Path(name).suffix in ("", ".txt"))


def stems(folder: Path) -> dict[str, list[Path]]:
    """Returns the readable files by their name in lower case without suffixes."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, suffix, _ = split_suffix(path)
        if suffix and path.is_file():
            found.setdefault(stem.lower(), []).append(path)
    return found


def only_file(folder: Path, name: str, paths: list[Path]) -> Path:
    """Returns the one file of this name; raises DataError if there are several."""
    if len(paths) > 1:
        found = " and ".join(sorted(p.name for p in paths))
        raise DataError(f"{folder}: expected one {name} file, found {found}. Remove one.")
    return paths[0]
