"""Delimited text -> three Arrow columns, in blocks; and the slow search for a bad line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from pathe.columns import (
    BATCH,
    BROKEN,
    ROLES,
    SKIP_HINT,
    TEXT,
    BadRowError,
    ReadOptions,
    ReadReport,
    collect,
    is_utf8,
    known_header,
    named_positions,
    open_stream,
    split_suffix,
    unreadable,
)
from pathe.errors import DataError

_BLOCK = 8 << 20  # bytes parsed at a time; a line beyond it goes to the slow parser
_OPEN_QUOTE = "a quote is opened here and never closed. Close it, or double quotes inside names."
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PEEK = 1000  # rows whose widths are compared for a hint
_FIELD = 1 << 30  # bytes of a quoted name
_FEW_ROWS, _LOOKED_AT = 20, 10_000  # of so few rows, any may stand alone; more are not looked at
_END = b"\x1eend\x1e"  # a name in a row of our own after the last


class _Layout(NamedTuple):
    """Where the three names of a text row are; `width` is the number of columns."""

    delimiter: str
    quoted: bool
    width: int
    picks: tuple[int, ...]
    header: bool
    note: str = ""


def read_text(path: Path, options: ReadOptions, report: ReadReport) -> Any:
    """A table of the file's rows: by the fast parser, by the slow one when that stumbles."""
    try:
        layout = _layout(path, options)
    except BROKEN as error:
        raise unreadable(path, error) from error
    report.notes += [layout.note] if layout.note else []
    try:
        table = collect(_fast_batches(path, layout), None)
    except (*BROKEN, BadRowError):
        # Only the slow parser can name a bad line, skip it, or take a line beyond a block.
        table = collect(_slow_batches(path, layout, options, report), None)
    if not layout.header and options.header is None and _stands_alone(table):
        first = ", ".join(table.column(role)[0].as_py() for role in ROLES)
        report.notes.append(
            f"first line of {path} read as a triple: {first}; if it is a header, add --header"
        )
    return table


def _stands_alone(table: Any) -> bool:
    """Whether none of the first row's names soon is in its column again, as a header's aren't."""
    if table.num_rows < _FEW_ROWS:
        return False
    columns = [table.column(role).slice(0, _LOOKED_AT) for role in ROLES]
    return all(pc.sum(pc.equal(column, column[0])).as_py() == 1 for column in columns)


def locate_line(path: Path, options: ReadOptions, row: int) -> str:
    """`, line 7` for the row numbered from 0 of a file read without skipping."""
    layout = _layout(path, options)
    lines = (line for line, _, _ in _records(path, layout.delimiter, layout.quoted))
    return f", line {next(islice(lines, row + layout.header, None), 0)}"


def _fast_batches(path: Path, layout: _Layout) -> Iterator[list[Any]]:
    """Three binary arrays a block; ArrowInvalid for anything out of the ordinary."""
    names = [f"f{i}" for i in range(layout.width)]
    picked = [names[i] for i in layout.picks]
    quote: Any = '"' if layout.quoted else False
    reader = pacsv.open_csv(
        _Ended(open_stream(path), layout) if layout.quoted else open_stream(path),
        read_options=pacsv.ReadOptions(column_names=names, block_size=_BLOCK),
        parse_options=pacsv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char=quote,
            double_quote=layout.quoted,
            newlines_in_values=layout.quoted,
        ),
        convert_options=pacsv.ConvertOptions(
            include_columns=picked,
            column_types=dict.fromkeys(names, pa.large_binary()),
            check_utf8=False,
        ),
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
    """A stream with one more row: the parser lets an open quote swallow it without a word."""

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


def _slow_batches(
    path: Path, layout: _Layout, options: ReadOptions, report: ReadReport
) -> Iterator[list[Any]]:
    """Three binary arrays a batch, line by line: bad lines raise DataError or are skipped."""
    line, rows = 0, []
    records = _records(path, layout.delimiter, layout.quoted)
    try:
        for line, row, problem in islice(records, int(layout.header), None):
            if problem := problem or _problem(row, layout):
                problem = f"{path}, line {line}: {problem}"
                if options.on_error == "raise" or problem.endswith(_OPEN_QUOTE):
                    raise DataError(f"{problem}{_hint(path, row, layout)}")
                report.skipped += 1
                report.first_skipped = report.first_skipped or problem
                continue
            rows.append([row[i] for i in layout.picks])
            if len(rows) == BATCH:
                yield [pa.array(column, pa.large_binary()) for column in zip(*rows, strict=True)]
                rows = []
    except BROKEN as error:
        raise unreadable(path, error, f" after line {line}") from error
    if rows:
        yield [pa.array(column, pa.large_binary()) for column in zip(*rows, strict=True)]


def _problem(row: list[bytes], layout: _Layout) -> str:
    """What is wrong with a row, in words; "" when nothing is."""
    if len(row) != layout.width:
        separator = {"\t": "tabs", " ": "spaces", ",": "commas"}.get(layout.delimiter)
        whole = layout.delimiter.encode().join(row)
        return (
            f"expected {layout.width} columns separated by {separator or repr(layout.delimiter)}, "
            f"got {len(row)}: {whole[:80].decode(errors='replace')!r}."
        )
    for role, i in zip(ROLES, layout.picks, strict=True):
        if not row[i]:
            return f"expected a {role} in column {i + 1}, it is empty."
        if not is_utf8(row[i]):
            return f"expected UTF-8 text, the {role} is {row[i][:80]!r}."
    return ""


def _hint(path: Path, row: list[bytes], layout: _Layout) -> str:
    """What to do about a bad row."""
    if not row:
        return ""
    whole = layout.delimiter.encode().join(row)
    words = {b"\t": "tab", b" ": "space", b",": "comma", b";": "';'", b"|": "'|'"}
    for other, word in words.items():
        if len(row) < 3 and other.decode() != layout.delimiter and whole.count(other) == 2:
            return f" Perhaps it needs --delimiter {word}. {SKIP_HINT}"
    records = islice(_records(path, layout.delimiter, layout.quoted), _PEEK)
    if layout.width == 3 < len(row) and all(len(r) == len(row) for _, r, _ in records):
        return " All lines have as many: say which to read, as in --columns 1,2,3."
    return f" {SKIP_HINT}"


def _layout(path: Path, options: ReadOptions) -> _Layout:
    """Delimiter, width, columns and header, from the options and the first row."""
    _, suffix, _ = split_suffix(path)
    quoted = suffix == ".csv"
    delimiter = options.delimiter or TEXT[suffix]
    delimiter = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ","}.get(delimiter, delimiter)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise DataError(f"--delimiter: expected one ASCII character or 'tab', got {delimiter!r}")
    named = options.columns is not None and not all(c.isdecimal() for c in options.columns)
    records = _records(path, delimiter, quoted)
    line, row, _ = next(records, (0, [], ""))
    if not line:
        raise DataError(f"{path}: no triples in it; expected at least one.")
    if row and row[0].startswith(_UTF16) and any(b"\0" in f for f in row):
        raise DataError(f"{path}: expected UTF-8 text, this is UTF-16. Convert it, e.g. by iconv.")
    first = [f.decode(errors="replace") for f in row]
    note = f"first line of {path} read as a header: {', '.join(first)}"
    if options.header is not None or tuple(first) == ROLES:
        note = ""  # as asked for, or as this package writes it
    if options.columns is None:
        known = known_header(first) if len(first) == 3 and options.header is not False else None
        header, note = bool(options.header or known), note if known else ""
        return _Layout(delimiter, quoted, 3, known or (0, 1, 2), header, note)
    if named:
        if options.header is False:
            raise DataError(f"--columns {','.join(options.columns)} names a header; there is none.")
        return _Layout(
            delimiter, quoted, len(first), named_positions(path, options.columns, first), True
        )
    picks = tuple(int(c) - 1 for c in options.columns)
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
    """(physical line number, fields, problem) of each row that isn't blank; slow."""
    with open_stream(path) as stream:
        if not quoted:
            for number, line in enumerate(physical_lines(stream), 1):
                line = line.rstrip(b"\r\n")
                if line if delimiter == " " else line.strip(b" "):
                    yield number, line.split(delimiter.encode()), ""
            return
        csv.field_size_limit(_FIELD)
        ended = False

        def text() -> Iterator[str]:
            nonlocal ended
            # Latin-1 maps each byte to one character and back, so that bad UTF-8 gets through.
            yield from (line.decode("latin-1") for line in physical_lines(stream))
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
            if ended:  # a row that asks for more lines than there are
                yield start, [], _OPEN_QUOTE
            elif row and (len(row) > 1 or row[0].strip(" ")):
                yield start, [f.encode("latin-1") for f in row], ""


def physical_lines(stream: Any) -> Iterator[bytes]:
    """Physical lines with their ends (LF, CRLF or CR), without a byte-order mark."""
    carry, first = b"", True
    while block := stream.read(1 << 20):
        pieces = (carry + block).splitlines(keepends=True)
        carry = pieces.pop()  # may go on in the next block, even as the LF of a CRLF
        for line in pieces:
            yield line.removeprefix(_BOM) if first else line
            first = False
    if carry:
        yield carry.removeprefix(_BOM) if first else carry


def small_table(path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of a small file's rows that aren't blank: CSV, or tabs and no quotes."""
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
        raise DataError(f"{path}: {what} can't be read ({error})") from None
