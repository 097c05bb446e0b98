"""Delimited text -> three Arrow columns: a fast parser, and a slow one that names bad lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from pathe.core.errors import DataError, lacks_memory
from pathe.core.types import PARTS, Fact, whole_number
from pathe.data.columns import (
    BROKEN,
    SKIP_HINT,
    TEXT,
    ReadOptions,
    ReadReport,
    checked,
    collect,
    is_utf8,
    known_header,
    left_out_note,
    numbers,
    open_stream,
    positions,
    reading,
    row_batches,
    split_suffix,
)
from pathe.data.room import Room, check_threads

_BLOCK = 8 << 20  # bytes per block of the fast parser; the slow one reads longer lines
_OPEN_QUOTE = "a quote is opened here and never closed. Close it, or double quotes inside names."
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PEEK = 1000  # rows whose column counts are compared for a hint
_COPIES = 3  # of a long line, while it becomes names
_FIELD = 1 << 30  # the longest quoted name, in bytes
_FEW_ROWS = 20  # too few to spot a header by
_END = b"\x1eend\x1e"  # the names in a row that we append to find open quotes
_WORDS = {"\t": "tab", " ": "space", ",": "comma"}


class _Layout(NamedTuple):
    """How to split a row, and where its three names are; `width` is the number of columns."""

    delimiter: str
    quoted: bool
    width: int
    picks: tuple[int, ...]
    header: bool
    note: str = ""


def text_batches(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[list[Any]]:
    """Yields the file's triples as dictionary columns; parses slowly from the first problem on."""
    with reading(path):
        layout = _layout(path, options)
    report.notes += [layout.note] if layout.note else []
    n_read = 0
    try:
        for columns in checked(_fast_batches(path, layout)):
            yield columns
            n_read += len(columns[0])
    except BROKEN as error:
        if lacks_memory(error):
            raise
        # Only the slow parser can name a bad line, skip it, or read a line longer than a block.
        rest = islice(_slow_rows(path, layout, options, report), n_read, None)
        yield from checked(row_batches(rest))


def read_text(path: Path, options: ReadOptions, report: ReadReport) -> Any:
    """Returns a table of the file's triples; keeps a first row that may be a header."""
    table = collect(text_batches(path, options, report), Room(path))
    with reading(path):
        layout = _layout(path, options)
    if not layout.header and options.header is None and table.num_rows >= _FEW_ROWS:
        head, relation, tail = (table.column(role)[0].as_py() for role in PARTS)
        if not recurs((head, relation, tail), table) and _rows_of_rare_names(table) == 1:
            report.odd_first_rows[path] = head, relation, tail
    return table


def recurs(first: Fact, table: Any) -> bool:
    """Whether a name of a first row occurs in another row: those of a header hardly ever do.

    `table` is the file of that row or another one of the same graph; first rows don't count, since
    all files may have the same header.
    """
    head, relation, tail = first
    places = (
        (head, "head"),
        (head, "tail"),
        (relation, "relation"),
        (tail, "head"),
        (tail, "tail"),
    )
    return any(_occurs(name, table.column(role).chunk(0)) for name, role in places)


def _rows_of_rare_names(table: Any) -> int:
    """Counts the rows whose names all occur once in their columns."""
    codes = [numbers(table.column(role).chunk(0).indices, np.int32) for role in PARTS]
    once = [np.bincount(column)[column] == 1 for column in codes]
    return int((once[0] & once[1] & once[2]).sum())


def _occurs(name: str, column: Any) -> bool:
    """Whether a name is in a dictionary column, after the first row."""
    code = pc.index(column.dictionary, _scalar(name)).as_py()
    return code >= 0 and bool((numbers(column.indices, np.int32)[1:] == code).any())


def _scalar(text: str) -> Any:
    """Returns an Arrow scalar; `pa.scalar` would import pandas, which takes 0.2 s."""
    data = text.encode()
    ends = np.array([0, len(data)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(data))[0]


def locate_line(path: Path, options: ReadOptions, row: int) -> str:
    """Returns `, line 7` for a row (from 0) of a file read without skipping."""
    layout = _layout(path, options)
    lines = (line for line, _, _ in _records(path, layout.delimiter, layout.quoted))
    return f", line {next(islice(lines, row + layout.header, None), 0)}"


def text_rows(path: Path, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of a CSV file's rows, its header included; slow."""
    delimiter = _delimiter(options.delimiter or ",")
    with reading(path):
        for line, row, problem in _records(path, delimiter, quoted=True):
            try:
                cells = [cell.decode() for cell in row]
            except UnicodeDecodeError:
                problem = f"expected UTF-8 text, got {row[:5]}."
            if problem:
                raise DataError(f"{path}, line {line}: {problem}")
            yield line, cells


def _delimiter(text: str) -> str:
    """Returns the character that an option stands for."""
    words = {"\\t": "\t"} | {word: mark for mark, word in _WORDS.items()}
    mark = words.get(text, text)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n':
        raise DataError(f"--delimiter: expected one ASCII character or 'tab', got {mark!r}")
    return mark


def _fast_batches(path: Path, layout: _Layout) -> Iterator[list[Any]]:
    """Yields three binary arrays per block; raises ArrowInvalid for anything unusual."""
    names = [f"f{i}" for i in range(layout.width)]
    picked = [names[i] for i in layout.picks]
    quoted, types = layout.quoted, dict.fromkeys(names, pa.large_binary())
    how = {"quote_char": '"' if quoted else False, "double_quote": quoted}
    check_threads()
    reader = pacsv.open_csv(
        _Ended(open_stream(path), layout) if quoted else open_stream(path),
        pacsv.ReadOptions(column_names=names, block_size=_BLOCK),
        pacsv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=quoted, **how),
        pacsv.ConvertOptions(include_columns=picked, column_types=types, check_utf8=False),
    )
    start, held = int(layout.header), None
    for batch in reader:
        if not batch.num_rows:
            continue
        if held is not None:
            yield held
        held = [batch.column(name)[start:] for name in picked]
        start = 0
    if held is not None and layout.quoted:
        if [column[-1:].to_pylist() for column in held] != [[_END]] * 3:
            raise pa.ArrowInvalid("an open quote has swallowed rows")
        held = [column[:-1] for column in held]
    if held is not None:
        yield held


class _Ended(io.RawIOBase):
    """A stream with one more row at its end: if it is lost, an open quote has swallowed it."""

    def __init__(self, stream: Any, layout: _Layout) -> None:
        self._stream = stream
        self._rest = b"\n" + layout.delimiter.encode().join([_END] * layout.width) + b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._stream.read(size)
        if not block:
            block, self._rest = self._rest, b""
        return block


def _slow_rows(
    path: Path, layout: _Layout, options: ReadOptions, report: ReadReport
) -> Iterator[list[bytes]]:
    """Yields the names of each row; bad lines raise DataError or are skipped."""
    line = 0
    records = _records(path, layout.delimiter, layout.quoted)
    with reading(path, lambda: f" after line {line}"):
        for line, row, problem in islice(records, int(layout.header), None):
            if problem := problem or _problem(row, layout):
                problem = f"{path}, line {line}: {problem}"
                if options.on_error == "raise" or problem.endswith(_OPEN_QUOTE):
                    raise DataError(f"{problem}{_hint(path, row, layout)}")
                report.skip(problem, options)
            else:
                yield [row[i] for i in layout.picks]


def _problem(row: list[bytes], layout: _Layout) -> str:
    """Says what is wrong with a row; "" if nothing is."""
    if len(row) != layout.width:
        mark = layout.delimiter
        marks = f"{_WORDS[mark]}s" if mark in _WORDS else repr(mark)
        whole = mark.encode().join(row)[:80].decode(errors="replace")
        expected = f"expected {layout.width} columns separated by {marks}"
        return f"{expected}, got {len(row)}: {whole!r}."
    for role, i in zip(PARTS, layout.picks, strict=True):
        if not row[i]:
            return f"expected a {role} in column {i + 1}, but it is empty."
        if not is_utf8(row[i]):
            return f"expected UTF-8 text, the {role} is {row[i][:80]!r}."
    return ""


def _hint(path: Path, row: list[bytes], layout: _Layout) -> str:
    """Says what to do about a bad row."""
    if not row:
        return ""
    whole = layout.delimiter.encode().join(row)
    for mark in "\t ,;|":
        if len(row) < 3 and mark != layout.delimiter and whole.count(mark.encode()) == 2:
            return f" Perhaps it needs --delimiter {_WORDS.get(mark, repr(mark))}. {SKIP_HINT}"
    records = islice(_records(path, layout.delimiter, layout.quoted), _PEEK)
    if layout.width == 3 < len(row) and all(len(r) == len(row) for _, r, _ in records):
        return " All lines have as many: say which to read, for example --columns 1,2,3."
    return f" {SKIP_HINT}"


def _layout(path: Path, options: ReadOptions) -> _Layout:
    """Delimiter, width, columns and header, from the options and the first row."""
    _, suffix, _ = split_suffix(path)
    quoted = suffix == ".csv"
    delimiter = _delimiter(options.delimiter or TEXT[suffix])
    records = _records(path, delimiter, quoted)
    line, row, _ = next(records, (0, [], ""))
    if not line:
        raise DataError(f"{path}: contains no triples; expected at least one.")
    if row and row[0].startswith(_UTF16) and any(b"\0" in f for f in row):
        raise DataError(f"{path}: expected UTF-8 text, this is UTF-16. Convert it, e.g. by iconv.")
    first = [f.decode(errors="replace") for f in row]
    note = f"first line of {path} read as a header: {', '.join(first)}"
    if options.header is not None or tuple(first) == PARTS:
        note = ""  # as asked for, or as this package writes it
    if options.columns is None:
        known = known_header(first) if options.header is not False else None
        if known and len(first) > 3:
            note = left_out_note(path, first, known)
            return _Layout(delimiter, quoted, len(first), known, True, note)
        header, note = bool(options.header or known), note if known else ""
        return _Layout(delimiter, quoted, 3, known or (0, 1, 2), header, note)
    numbered = [n for c in options.columns if (n := whole_number(c)) is not None]
    if len(numbered) < 3:
        if options.header is False:
            raise DataError(f"--columns {','.join(options.columns)} names a header; there is none.")
        picks = positions(path, options.columns, first)
        return _Layout(delimiter, quoted, len(first), picks, True)
    picks = tuple(n - 1 for n in numbered)
    if len(set(picks)) < 3 or min(picks) < 0:
        raise DataError(f"--columns: expected 3 different positions from 1, got {options.columns}")
    if options.on_error == "skip":
        while len(first) <= max(picks) and (found := next(records, None)):
            first = [f.decode(errors="replace") for f in found[1]]
    if len(first) <= max(picks):
        raise DataError(
            f"{path}, line {line}: expected at least {max(picks) + 1} columns for --columns "
            f"{','.join(options.columns)}, got {len(first)}. {SKIP_HINT}"
        )
    known = known_header([first[i] for i in picks]) if len(first) == len(row) else None
    header = known is not None if options.header is None else options.header
    return _Layout(delimiter, quoted, len(first), picks, header, note if header else "")


def _records(path: Path, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[bytes], str]]:
    """Yields (line number, fields, problem) of each row that isn't blank; slow."""
    room = Room(path)
    with open_stream(path) as stream:
        if not quoted:
            for number, line in enumerate(physical_lines(stream, room), 1):
                line = line.rstrip(b"\r\n")
                if line if delimiter == " " else line.strip(b" "):
                    yield number, line.split(delimiter.encode()), ""
            return
        csv.field_size_limit(_FIELD)
        ended = False

        def text() -> Iterator[str]:
            nonlocal ended
            # Latin-1 maps each byte to one character and back, so that bad UTF-8 gets through.
            yield from (line.decode("latin-1") for line in physical_lines(stream, room))
            ended = True

        # Not strict: `"x"y` is xy, as for the fast parser.
        rows = csv.reader(text(), delimiter=delimiter)
        while True:
            start = rows.line_num + 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield start, [], f"not CSV: {error}."
                continue
            if row is None:
                return
            if ended:  # the row's quote is still open at the end of the file
                yield start, [], _OPEN_QUOTE
            elif row and (len(row) > 1 or row[0].strip(" ")):
                yield start, [f.encode("latin-1") for f in row], ""


def physical_lines(stream: Any, room: Room | None = None) -> Iterator[bytes]:
    """Yields physical lines with their ends (LF, CRLF or CR), without a byte-order mark.

    A line ends with an error once there is no `room` for its copies.
    """
    pieces = [stream.read(len(_BOM)).removeprefix(_BOM)]  # of a line that isn't complete
    while block := stream.read(1 << 20):
        if b"\n" not in block and b"\r" not in block and not pieces[-1].endswith(b"\r"):
            pieces.append(block)  # joined once: a line may be long
            if room is not None:
                room.check(_COPIES * len(pieces) * len(block))
            continue
        *lines, carry = (b"".join(pieces) + block).splitlines(keepends=True)
        yield from lines  # the last may continue in the next block, even with the LF of a CRLF
        pieces = [carry]
    yield from b"".join(pieces).splitlines(keepends=True)


def small_table(path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of a small file's non-blank rows: CSV, or tabs and no quotes."""
    csv.field_size_limit(_FIELD)
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() != ".csv":
            lines = (line.rstrip("\r") for line in text.split("\n"))
            yield from ((i, line.split("\t")) for i, line in enumerate(lines, 1) if line.strip())
            return
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        for row in rows:
            if any(row):
                yield rows.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: {what} can't be read: {why}") from None
