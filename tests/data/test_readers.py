"""Files -> columns: formats, options, and every kind of bad input."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers import COMPRESS, read, refused, rows_of

import pathe.data.columns
import pathe.data.delimited
from pathe.core.errors import DataError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions, ReadReport, locate_row, read_columns


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kind", [".tsv", ".txt", ".csv"])
def test_text_in_every_compression(tmp_path: Path, kind: str, suffix: str) -> None:
    comma = "," if kind == ".csv" else "\t"
    raw = f"a{comma}r{comma}b c\nNA{comma}null{comma}é\n".encode()
    rows, report = read(tmp_path / f"x{kind}{suffix}", COMPRESS[suffix](raw))
    assert rows == [("a", "r", "b c"), ("NA", "null", "é")]
    assert (report.rows, report.skipped, report.notes) == (2, 0, [])


@pytest.mark.parametrize(
    "raw",
    [
        b"a\tr\tb\nc\tr\td\n",
        b"a\tr\tb\nc\tr\td",
        b"a\tr\tb\r\nc\tr\td\r\n",
        b"a\tr\tb\rc\tr\td\r",
        b"\xef\xbb\xbfa\tr\tb\nc\tr\td\n",
        b"\n\na\tr\tb\n\n\r\n   \nc\tr\td\n\n",
    ],
)
def test_line_ends_marks_and_blank_lines(tmp_path: Path, raw: bytes) -> None:
    assert read(tmp_path / "x.tsv", raw)[0] == [("a", "r", "b"), ("c", "r", "d")]


def test_tsv_takes_quotes_spaces_and_backslashes_as_they_are(tmp_path: Path) -> None:
    raw = ' "a\tr"\t"b" \n\\t\t\'\t""\n\x00\t \t\ufeff\n'.encode()
    expected = [(' "a', 'r"', '"b" '), ("\\t", "'", '""'), ("\x00", " ", "\ufeff")]
    assert read(tmp_path / "x.tsv", raw)[0] == expected


def test_csv_quotes_hold_delimiters_line_ends_and_quotes(tmp_path: Path) -> None:
    raw = b'"a,1",r,"b\nc"\n"say ""hi""",r,d"e\n'
    rows, _ = read(tmp_path / "x.csv", raw)
    assert rows == [("a,1", "r", "b\nc"), ('say "hi"', "r", 'd"e')]


@pytest.mark.parametrize(
    "first",
    ["H\tR\tT", "s\tp\to", "From\ttype\tto", "source\trel\tdest", "src\tedge\tDestination",
     "subject\tpred\ttarget"],
)  # fmt: skip
def test_known_headers_are_taken_and_reported(tmp_path: Path, first: str) -> None:
    path, raw = tmp_path / "x.tsv", f"{first}\na\tr\tb\n".encode()
    rows, report = read(path, raw)
    assert rows == [("a", "r", "b")]
    assert report.notes == [f"first line of {path} read as a header: {', '.join(first.split())}"]
    rows, report = read(path, raw, columns=("1", "2", "3"))
    assert (rows, len(report.notes)) == ([("a", "r", "b")], 1)
    assert read(path, raw, header=True)[1].notes == []


def test_our_own_header_goes_without_saying(tmp_path: Path) -> None:
    rows, report = read(tmp_path / "x.tsv", b"head\trelation\ttail\na\tr\tb\n")
    assert (rows, report.notes) == ([("a", "r", "b")], [])


@pytest.mark.parametrize("row", ["s\tr\tt", "h\tr\to", "head\tr\tt"])
def test_other_words_are_names(tmp_path: Path, row: str) -> None:
    assert len(read(tmp_path / "x.tsv", f"{row}\na\tr\tb\n".encode())[0]) == 2


def test_header_in_another_order_moves_the_columns(tmp_path: Path) -> None:
    rows, _ = read(tmp_path / "x.csv", b"object,subject,predicate\nb,a,r\n")
    assert rows == [("a", "r", "b")]


def test_header_can_be_forced_either_way(tmp_path: Path) -> None:
    raw = b"h\tr\tt\na\tr\tb\n"
    assert read(tmp_path / "x.tsv", raw, header=False)[0] == [("h", "r", "t"), ("a", "r", "b")]
    rows, report = read(tmp_path / "x.tsv", b"x\ty\tz\na\tr\tb\n", header=True)
    assert (rows, report.notes) == ([("a", "r", "b")], [])


def test_a_row_that_is_no_header_stays(tmp_path: Path) -> None:
    assert len(read(tmp_path / "x.tsv", b"head\tof\ttail\na\tr\tb\n")[0]) == 2


def test_columns_by_position_and_by_name(tmp_path: Path) -> None:
    raw = b"w,tail,head,rel\n0.5,b,a,r\n"
    assert read(tmp_path / "x.csv", raw, columns=("head", "rel", "tail"))[0] == [("a", "r", "b")]
    rows, _ = read(tmp_path / "x.csv", b"0.5,b,a,r\n1,d,c,r\n", columns=("3", "4", "2"))
    assert rows == [("a", "r", "b"), ("c", "r", "d")]
    assert "'nose'" in refused(tmp_path / "x.csv", raw, columns=("head", "rel", "nose"))
    assert "line 1" in refused(tmp_path / "x.csv", raw, columns=("1", "2", "9"))
    assert "line 3" in refused(tmp_path / "x.csv", raw + b"1,b,a\n", columns=("3", "4", "2"))


def test_unused_columns_may_hold_anything(tmp_path: Path) -> None:
    rows, _ = read(
        tmp_path / "x.tsv", b"a\tr\tb\t\n\xc3\xa9\tr\tb\t\xff\n", columns=("1", "2", "3")
    )
    assert rows == [("a", "r", "b"), ("é", "r", "b")]


def test_delimiter(tmp_path: Path) -> None:
    assert read(tmp_path / "x.txt", b"a|r|b\n", delimiter="|")[0] == [("a", "r", "b")]
    assert read(tmp_path / "x.csv", b"a\tr\tb\n", delimiter="\\t")[0] == [("a", "r", "b")]
    assert read(tmp_path / "x.txt", b"a r b\n", delimiter="space")[0] == [("a", "r", "b")]
    (tmp_path / "x.txt").write_bytes(b"a||r||b\n")
    with pytest.raises(DataError, match="--delimiter"):
        read_columns(tmp_path / "x.txt", ReadOptions(delimiter="||"))


def test_blocks_smaller_than_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathe.data.delimited, "_BLOCK", 64)
    monkeypatch.setattr(pathe.data.columns, "_UNIFY_AT", 8)
    expected = [(f"e{i}", f"r{i % 3}", "x" * 200 if i == 50 else "y") for i in range(99)]
    raw = "".join("\t".join(row) + "\n" for row in expected).encode()
    assert read(tmp_path / "x.tsv", raw)[0] == expected
    raw = "".join("\t".join(row) + "\n" for row in expected if row[2] == "y").encode()
    assert len(read(tmp_path / "x.tsv", raw)[0]) == 98


def test_dictionaries_merge_to_distinct_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pathe.data.delimited, "_BLOCK", 128)
    monkeypatch.setattr(pathe.data.columns, "_UNIFY_AT", 8)
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"e{i * 7 % 31}\tr\te{i}\n" for i in range(500)))
    table = read_columns(path)
    assert len(table.column("head").chunk(0).dictionary) == 31
    assert len(table.column("tail").chunk(0).dictionary) == 500
    assert rows_of(table)[3] == ("e21", "r", "e3")


@pytest.mark.parametrize(
    ("raw", "line", "words"),
    [
        (b"a\tr\tb\na\tr\n", 2, "expected 3 columns separated by tabs, got 2"),
        (b"a\tr\tb\n\n\na\tr\tb\tc\n", 4, "got 4"),
        (b"a\tr\tb\r\n\r\na,r,b\r\n", 3, "--delimiter comma"),
        (b"a r b\n", 1, "--delimiter space"),
        (b"a\tr\tb\ra\t\tb\r", 2, "expected a relation in column 2, but it is empty"),
        (b"a\tr\tb\n\tr\tb\n", 2, "expected a head"),
        (b"a\tr\tb\n\nc\tr\tb\xff\n", 3, "expected UTF-8 text, the tail is b'b\\xff'"),
        (b"a\tr\tb\n\xff\tr\n", 2, "got 2"),
        (b"h\tr\tt\na\tr\n", 2, "got 2"),
    ],
)
def test_bad_lines_are_named_or_skipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], raw: bytes, line: int, words: str
) -> None:
    path = tmp_path / "x.tsv"
    message = refused(path, raw)
    assert f"{path}, line {line}: " in message
    assert words in message
    more = raw + (b"" if raw.endswith((b"\n", b"\r")) else b"\n") + b"good\tr\tgood\n"
    rows, report = read(path, more, on_error="skip")
    assert ("good", "r", "good") in rows
    assert report.skipped == 1
    assert f"line {line}: " in report.first_skipped
    assert capfd.readouterr() == ("", "")  # the parser's own complaints stay inside


def test_files_of_another_width_are_told_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    message = refused(path, b"a\tr\tb\t1\nc\tr\td\t2\n")
    assert "got 4" in message
    assert "--columns 1,2,3" in message
    assert "skip" not in message
    message = refused(path, b"a\tr\tb\t1\nc\tr\td\n")
    assert "--columns" not in message
    assert "skip" in message


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be"])
def test_utf_16_is_named(tmp_path: Path, code: str) -> None:
    raw = ("\ufeff" if code.endswith("be") else "") + "a\tr\tb\n"
    assert "this is UTF-16" in refused(tmp_path / "x.tsv", raw.encode(code), on_error="skip")


@pytest.mark.parametrize("name", ["x.tsv", "x.nt"])
def test_no_permission_is_not_called_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def closed(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathe.data.delimited.open_stream", closed)
    monkeypatch.setattr("pathe.data.ntriples.open_stream", closed)
    message = refused(tmp_path / name, b"a\tr\tb\n")
    assert "no permission" in message
    assert "corrupt" not in message


def test_skipping_drops_the_names_of_skipped_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"a\tr\tb\nlost\tr\t\n")
    table = read_columns(path, ReadOptions(on_error="skip"))
    assert table.column("head").chunk(0).dictionary.to_pylist() == ["a"]


def test_bad_csv_lines_count_physical_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    assert "line 4: " in refused(path, b'"a\n1",r,b\n\na,r\n')
    rows, report = read(path, b'"a\n1",r,b\n"x"y,r,b\na,r\nc,r,d\n', on_error="skip")
    assert rows == [("a\n1", "r", "b"), ("xy", "r", "b"), ("c", "r", "d")]
    assert report.skipped == 1


odd_files = st.lists(
    st.sampled_from(["a", "é", '"', '""', '"b,"', "{}", "{}", "{}", "\n", "\r\n", "\r", " ", "\0"]),
    min_size=1,
    max_size=30,
).map("".join)
fields = st.sampled_from(["a", '"a"', '"a""b"', '"a"b', 'a"b', '"x\ny"', '"', '"a', " ", "é", '""'])
even_files = st.lists(st.lists(fields, min_size=3, max_size=3).map("{}".join), min_size=1).map(
    "\n".join
)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from([".csv", ".tsv"]), text=odd_files | even_files)
def test_the_fast_parser_never_differs_from_the_slow(
    tmp_path_factory: pytest.TempPathFactory, kind: str, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"twins{kind}"
    path.write_bytes(text.replace("{}", "," if kind == ".csv" else "\t").encode())
    options = ReadOptions(header=False)
    try:
        layout = pathe.data.delimited._layout(path, options)
        batches = pathe.data.delimited._fast_batches(path, layout)
        fast = pathe.data.columns.collect(pathe.data.columns.checked(batches))
    except (DataError, *pathe.data.columns.BROKEN):
        return  # then the slow one is asked
    slow = pathe.data.delimited._slow_rows(path, layout, options, ReadReport())
    assert rows_of(fast) == rows_of(pathe.data.columns.collect_rows(slow))


@pytest.mark.parametrize(
    "raw", [b'a,r,b\nc,r,"d\ne,r,f\n', b'a,r,b\n"c,r,d\ne,r,f\n', b'a,r,b\nc,r,"d']
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_open_quote_swallows_nothing_in_silence(
    tmp_path: Path, raw: bytes, on_error: str
) -> None:
    message = refused(tmp_path / "x.csv", raw, on_error=on_error)
    assert "line 2: a quote is opened" in message


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"  \n", b"head\trelation\ttail\n"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_no_triples(tmp_path: Path, raw: bytes, on_error: str) -> None:
    assert "no triples" in refused(tmp_path / "x.tsv", raw, on_error=on_error)
    assert "no triples" in refused(tmp_path / "x.tsv.gz", gzip.compress(raw), on_error=on_error)


def test_all_lines_skipped_is_an_error(tmp_path: Path) -> None:
    message = refused(tmp_path / "x.tsv", b"a\tr\nb\n", on_error="skip")
    assert "2 bad lines skipped. Correct the file" in message
    assert "line 1" in message
    assert "--on-error" not in message
    assert "1 bad line skipped" in refused(tmp_path / "x.tsv", b"a\n", on_error="skip")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".tsv", ".nt"])
def test_truncated_and_corrupt_compression(tmp_path: Path, kind: str, suffix: str) -> None:
    line = "e{0}\tr\te{1}\n" if kind == ".tsv" else "<x:e{0}> <x:r> <x:e{1}> .\n"
    raw = "".join(line.format(i * 7919 % 10007, i) for i in range(20000)).encode()
    packed = COMPRESS[suffix](raw)
    path = tmp_path / f"x{kind}{suffix}"
    assert "truncated or corrupt" in refused(path, packed[: len(packed) // 2])
    assert "truncated or corrupt" in refused(path, b"plainly not compressed", on_error="skip")


def test_unknown_suffix_lists_the_known(tmp_path: Path) -> None:
    message = refused(tmp_path / "x.docx", b"a\tr\tb\n")
    assert ".tsv" in message
    assert ".zst" in message
    assert ".parquet" in refused(tmp_path / "x.parquet.gz", b"")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.tsv"):
        with pytest.raises(DataError, match="expected a file"):
            read_columns(path)


# Parquet


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_by_known_names_positions_and_order(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", w=[1], object=["b"], subject=["a"], predicate=["r"])
    assert rows_of(read_columns(path)) == [("a", "r", "b")]
    path = parquet(tmp_path / "x.parquet", x=["a"], y=["r"], z=["b"])
    assert rows_of(read_columns(path)) == [("a", "r", "b")]
    assert rows_of(read_columns(path, ReadOptions(columns=("3", "2", "1")))) == [("b", "r", "a")]
    assert rows_of(read_columns(path, ReadOptions(columns=("z", "y", "x")))) == [("b", "r", "a")]
    with pytest.raises(DataError, match="'q'"):
        read_columns(path, ReadOptions(columns=("x", "y", "q")))
    with pytest.raises(DataError, match="exactly 3"):
        read_columns(parquet(tmp_path / "x.parquet", x=["a"], y=["r"]))


def test_parquet_types(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "x.parquet",
        head=pa.array([3, -1]),
        relation=pa.array(["r", "r"]).dictionary_encode(),
        tail=pa.array(["b", "é"], pa.large_string()),
    )
    assert rows_of(read_columns(path)) == [("3", "r", "b"), ("-1", "r", "é")]
    path = parquet(tmp_path / "x.parquet", head=["a"], relation=["r"], tail=[0.5])
    with pytest.raises(DataError, match=r"x\.parquet.*tail.*double"):
        read_columns(path)


def test_parquet_nulls_and_rubbish(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "x.parquet", head=["a", None, "c"], relation=["r"] * 3, tail=["b", "b", ""]
    )
    with pytest.raises(DataError, match=r"x\.parquet, row 2"):
        read_columns(path)
    report = ReadReport()
    assert rows_of(read_columns(path, ReadOptions(on_error="skip"), report)) == [("a", "r", "b")]
    assert report.skipped == 2
    assert "row 2" in report.first_skipped
    assert "Parquet" in refused(tmp_path / "y.parquet", b"PAR1 rubbish")


# The rest


def test_rows_are_located(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"h\tr\tt\n\na\tr\tb\n\nc\tr\td\n")
    assert locate_row(path, ReadOptions(), 1) == ", line 5"
    assert locate_row(tmp_path / "x.parquet", ReadOptions(), 1) == ", row 2"


def notes_of(folder: Path, **files: str) -> list[str]:
    """The notes of reading a folder of comma-separated files, or of one such file."""
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    data = folder if len(files) > 1 else folder / f"{next(iter(files))}.csv"
    return KnowledgeGraph.read(data, every_relation=True).report.notes


def test_a_first_line_that_may_be_a_header_is_told(tmp_path: Path) -> None:
    rows = "".join(f"a{i % 7},r{i % 2},b{i % 5}\n" for i in range(30))
    told = [f"first line of {tmp_path / 'graph.csv'} read as a triple: Person, Link, Other; "
            "if it is a header, add --header"]  # fmt: skip
    assert notes_of(tmp_path, graph="Person,Link,Other\n" + rows) == told
    for first in ("new,r1,b3\n", "b3,unique,new\n", ""):  # a name recurs, in either column
        assert notes_of(tmp_path, graph=first + rows) == []
    # Where another row has rare names only, the first is nothing special.
    assert notes_of(tmp_path, graph=f"new,rare,other\n{rows}c,seldom,d\n") == []
    report = ReadReport()
    read_columns(tmp_path / "graph.csv", ReadOptions(header=False), report)
    assert not report.odd_first_rows  # whoever says so need not be told


def test_first_lines_are_judged_by_all_files_of_a_graph(tmp_path: Path) -> None:
    """GraIL's fb237_v1 starts its validation file with a relation that it holds once."""
    rows = "".join(f"a{i % 7},r{i % 2},b{i % 5}\n" for i in range(30))
    rare = "Person,Link,Other\n"
    assert notes_of(tmp_path, train=rows + rare, valid=rare + rows, test=rows) == []
    notes = notes_of(tmp_path, train=rare + rows, valid=rare + rows, test=rare + rows)
    assert len(notes) == 3  # the same header in each file


def test_a_header_may_have_more_columns(tmp_path: Path) -> None:
    raw = b"id,Subject,weight,predicate,object,label\n1,a,.5,r,b,x\n2,c,.7,r,a,y\n"
    rows, report = read(tmp_path / "x.csv", raw)
    assert rows == [("a", "r", "b"), ("c", "r", "a")]
    assert report.notes == [
        f"columns of {tmp_path / 'x.csv'}: read Subject as head, predicate as relation, object as "
        "tail; left out id, weight, label"
    ]
    assert "expected 6 columns" in refused(tmp_path / "x.csv", raw + b"3,a,r,b\n")
    assert "--columns" in refused(tmp_path / "x.csv", raw, header=False)
    assert "--columns" in refused(tmp_path / "x.csv", b"id,who,does,what\n1,a,r,b\n2,a,r,c\n")


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_column_number_of_thousands_of_digits_is_no_column(tmp_path: Path, suffix: str) -> None:
    if suffix == ".tsv":
        raw = b"a\tr\tb\n"
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"h": ["a"], "r": ["r"], "t": ["b"]}), sink)
        raw = sink.getvalue().to_pybytes()
    assert "no column '999" in refused(tmp_path / f"x{suffix}", raw, columns=("9" * 5000, "2", "3"))


def test_too_little_memory_is_not_taken_for_a_damaged_file(tmp_path: Path, monkeypatch) -> None:
    def full(*given: Any, **more: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 1 failed")

    monkeypatch.setattr(pathe.data.delimited.pacsv, "open_csv", full)
    (tmp_path / "x.tsv").write_bytes(b"a\tr\tb\n")
    with pytest.raises(MemoryError):
        read_columns(tmp_path / "x.tsv")
