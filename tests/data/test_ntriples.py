"""N-Triples that are read at once are what the parser reads."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.core.errors import DataError
from pathe.core.types import PARTS
from pathe.data import ntriples
from pathe.data.columns import ReadOptions, ReadReport
from pathe.data.readers import read_columns

ox = pytest.importorskip("pyoxigraph")

IRIS = [
    "http://example.org/a", "https://example.org", "http://example.org/é#x?y", "urn:pathe:a%20b",
    "http://example.org/?q=1&r=(2)", "http://example.org/%41", "http://example.org/a//b:c@d",
    "http://example.org/[x]", "http://e.org:80/p", "http://example.org#f", "http://-./",
    "http://example.org/\\u00e9", "relative", "http://example.org/a b", "http://e.org/%zz",
    "http://", "http:///a", "http://example.org/\U0001f600", "http://example.org/a#b#c",
]  # fmt: skip
ends = st.sampled_from([f"<{iri}>" for iri in IRIS] + ["_:b1", '"text with <> ."', '"a"@en'])
spaces = st.sampled_from([" ", "  ", "\t", ""])
line = st.tuples(
    ends, spaces, ends, spaces, ends, st.sampled_from([" .", ".", "", " . # note", " .\r"])
).map("".join)
lines = st.lists(st.one_of(line, st.sampled_from(["", "# comment", "junk"])), max_size=20)


def rows_and_report(path, options):
    report = ReadReport()
    try:
        table = read_columns(path, options, report)
    except DataError as error:
        return str(error), None
    rows = zip(*(table.column(part).to_pylist() for part in PARTS), strict=True)
    return sorted(rows), (report.rows, report.literals, report.skipped, report.first_skipped)


@settings(max_examples=150, deadline=None)
@given(rows=lines, last=st.booleans(), block=st.integers(20, 400), skip=st.booleans())
def test_lines_are_read_as_the_parser_reads_them(tmp_path_factory, rows, last, block, skip):
    path = tmp_path_factory.mktemp("nt") / "g.nt"
    path.write_bytes("\n".join(rows).encode() + b"\n" * last)
    options = ReadOptions(on_error="skip" if skip else "raise")
    with mock.patch.object(ntriples, "_BLOCK", block):
        fast = rows_and_report(path, options)
    with mock.patch.object(ntriples, "_LINK", "^never$(?P<h>)(?P<r>)(?P<t>)"):
        slow = rows_and_report(path, options)  # one block, and the parser reads every line
    assert fast == slow


def test_a_bad_line_has_its_number_in_the_file(tmp_path):
    good = "<http://e.org/{0}> <http://e.org/r> <http://e.org/{0}> .\n"
    rows = [good.format(i) for i in range(100)]
    rows[70] = "<http://e.org/1> <http://e.org/r> .\n"
    rows[20] = '<http://e.org/1> <http://e.org/r> "literal" .\n'
    (tmp_path / "g.nt").write_text("".join(rows))
    with (
        mock.patch.object(ntriples, "_BLOCK", 500),
        pytest.raises(DataError, match=r"g.nt, line 71: not N-TRIPLES"),
    ):
        read_columns(tmp_path / "g.nt")
    report = ReadReport()
    assert read_columns(tmp_path / "g.nt", ReadOptions(on_error="skip"), report).num_rows == 98
    assert (report.literals, report.skipped) == (1, 1)
