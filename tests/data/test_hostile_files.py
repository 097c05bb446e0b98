"""Files that are damaged, or made to take all memory or hours: an error in words, soon."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import time
from pathlib import Path

import pyarrow as pa
import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.folders import refused

from pathe.core.errors import DataError
from pathe.data import columns, compressed, room, xml_bounds
from pathe.data.compressed import XzFile
from pathe.data.delimited import physical_lines
from pathe.data.knowledge_graph import KnowledgeGraph

TEXT = b"".join(b"a%d\tr\tb%d\n" % (i, i * 7 % 100) for i in range(2000))
PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True),
}


def spoilt(one: bytes) -> dict[str, bytes]:
    flipped = bytes([one[0] ^ 1]) + one[1:]
    return {
        "header of the second": one + flipped,
        "middle of the second": one + one[:20] + bytes([one[20] ^ 4]) + one[21:],
        "half of the second": one + one[: len(one) // 2],
        "no end": one[:-5],
        "other bytes": one + b"garbage!",
        "odd padding": one + b"\0" * 5,
    }


@pytest.mark.parametrize("suffix", PACK)
def test_what_is_no_stream_is_an_error_and_two_streams_are_read(tmp_path, suffix):
    path, one = tmp_path / f"g.tsv.{suffix}", PACK[suffix](TEXT)
    path.write_bytes(one + PACK[suffix](b"x\tr\ty\n"))
    assert len(KnowledgeGraph.read(path).train) == 2001
    for what, raw in spoilt(one).items():
        path.write_bytes(raw)
        assert "truncated or corrupt" in refused(path), (suffix, what)


def test_padding_between_xz_streams_is_skipped(tmp_path):
    path, one = tmp_path / "g.xz", lzma.compress(TEXT)
    path.write_bytes(one + b"\0" * 8 + one + b"\0" * 4)
    assert XzFile(path).read() == 2 * TEXT


@settings(max_examples=60)
@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), min_size=1, max_size=5))
def test_xz_is_read_as_python_reads_it(tmp_path_factory, raw, sizes):
    path = tmp_path_factory.mktemp("xz") / "a.xz"
    path.write_bytes(lzma.compress(raw) + lzma.compress(raw[::-1]))
    stream, found, i = XzFile(path), b"", 0
    while block := stream.read(sizes[i % len(sizes)]):
        found, i = found + block, i + 1
    stream.close()
    assert found == lzma.decompress(path.read_bytes()) == raw + raw[::-1]


def test_a_file_that_expands_too_much_is_refused_and_the_bound_can_be_lifted(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "ALWAYS", 1 << 16)
    for suffix, pack in PACK.items():
        path = tmp_path / f"g.tsv.{suffix}"
        path.write_bytes(pack(b"a\tr\tb\n" * 500_000))
        said = refused(path)
        assert "when decompressed" in said
        assert "PATHE_MAX_EXPANSION" in said
        monkeypatch.setenv("PATHE_MAX_EXPANSION", "1e6")
        assert len(KnowledgeGraph.read(path).train) == 1
        monkeypatch.delenv("PATHE_MAX_EXPANSION")


def test_long_lines_take_linear_time():
    class Stream:
        def __init__(self, n):
            self.left = [b"x" * (1 << 20)] * n

        def read(self, size):
            return self.left.pop() if self.left and size > 3 else b""

    def seconds(n):
        begin = time.perf_counter()
        assert [len(line) for line in physical_lines(Stream(n))] == [n << 20]
        return time.perf_counter() - begin

    seconds(8)
    assert seconds(128) < 5  # quadratic time would be tens of seconds


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b""]), max_size=12), st.data())
def test_lines_are_the_same_however_blocks_fall(parts, data):
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    blocks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    class Stream:
        def __init__(self):
            self.left = [b"", *filter(None, blocks)]

        def read(self, size):
            return self.left.pop(0) if self.left else b""

    assert b"".join(physical_lines(Stream())) == whole
    assert list(physical_lines(Stream())) == whole.splitlines(keepends=True)


RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">{}</rdf:RDF>'
FACT = '<rdf:Description rdf:about="{}a"><e:r rdf:resource="http://e/b"/></rdf:Description>'


def test_nested_entities_are_refused(tmp_path):
    path, names = tmp_path / "bomb.rdf", [f"l{i}" for i in range(12)]
    lines = ['<!ENTITY l0 "lol">']
    lines += [f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise(names)]
    fact = FACT.format("http://e/&l11;")
    path.write_text(f"<!DOCTYPE rdf:RDF [{''.join(lines)}]>{RDF.format(fact)}")
    begin = time.perf_counter()
    assert "'l1' refers to others" in refused(path)
    path.write_text(f'<!DOCTYPE rdf:RDF [<!ENTITY x "{"y" * 20_000}">]>{RDF.format(FACT)}')
    assert "20,000 bytes" in refused(path)
    assert time.perf_counter() - begin < 2


def test_plain_entities_are_read(tmp_path):
    path = tmp_path / "plain.owl"
    head = '<!DOCTYPE rdf:RDF [<!ENTITY e "http://e/" ><!ENTITY amper "a&amp;b">]>'
    path.write_text(f'<?xml version="1.0"?>\n{head}\n{RDF.format(FACT.format("&e;"))}')
    assert list(KnowledgeGraph.read(path).entities) == ["http://e/a", "http://e/b"]


def test_deep_elements_are_refused_and_long_files_are_not(tmp_path):
    path = tmp_path / "deep.rdf"
    path.write_text(RDF.format("<e:r><e:C>" * 50_000))
    begin = time.perf_counter()
    assert "elements within each other" in refused(path)
    assert time.perf_counter() - begin < 2
    facts = "".join(FACT.format(f"http://e/{i}") + "<!-- x --><?y z?>" for i in range(5000))
    path.write_text(RDF.format(facts))
    assert len(KnowledgeGraph.read(path).train) == 5000


LONG = "<!--" + "x" * 70_000 + "-->"
DECLARED = '<!DOCTYPE rdf:RDF [{}<!ENTITY a "xx"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    "start",
    [
        LONG + DECLARED.format(""),
        "<?x " + "y" * 70_000 + "?>" + DECLARED.format(""),
        DECLARED.format("<!-- ] -->" + LONG),
        DECLARED.format(f'<!ENTITY c "]">{LONG}'),
        DECLARED.format("<!-- &gt; it's -->").lower().replace("entity", "ENTITY"),
        "<!DOCTYPE x [<!-- > ]> -->" + DECLARED.format("")[19:],
        '<!DOCTYPE x [<!ENTITY c ">]>">' + DECLARED.format("")[19:],
        '<!DOCTYPE x [<!ENTITYa "xx"><!ENTITYb "&a;">]>',
        '<!DOCTYPE x [<!ENTITY\u00a0a "xx">]>',
        DECLARED.format(f'<!ENTITY {"n" * 101} "x">'),
        f"<!DOCTYPE x [{LONG * 16}]>",
    ],
)
def test_nested_entities_are_refused_wherever_they_are_declared(tmp_path, start):
    path = tmp_path / "bomb.rdf"
    path.write_text(start + RDF.format(FACT.format("http://e/&b;")))
    said = refused(path)
    words = ("'b' refers to others", "can take all memory", "Remove it from the document type")
    assert any(text in said for text in words)


@pytest.mark.parametrize("declared", ["<!-- a -> b -->", '<!ENTITY g "a>b">', "<!ENTITY g 'a->b'>"])
def test_a_document_type_that_the_parser_cant_read_is_told_from_a_hostile_one(tmp_path, declared):
    path = tmp_path / "harmless.rdf"
    path.write_text(f"<!DOCTYPE rdf:RDF [{declared}]>{RDF.format(FACT.format('http://e/'))}")
    with path.open("rb") as file, pytest.raises((SyntaxError, ValueError)):
        list(pyoxigraph.parse(file, format=pyoxigraph.RdfFormat.RDF_XML))
    said = refused(path)
    assert "Remove it from the document type" in said
    assert "all memory" not in said


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_by_its_name(tmp_path, encoding):
    path = tmp_path / "wide.rdf"
    facts = "".join(FACT.format(f"http://e/{i}") for i in range(5000))
    path.write_bytes(f"\ufeff{RDF.format(facts)}".encode(encoding))
    assert "is in UTF-16; expected UTF-8" in refused(path)


def test_entities_do_not_stand_for_more_than_a_multiple_of_the_file(tmp_path):
    path, value = tmp_path / "used.rdf", "x" * 9000
    start = f'<!DOCTYPE rdf:RDF [<!ENTITY a "{value}">]>'
    path.write_text(start + RDF.format(FACT.format("http://e/") + f"<!--{'&a;' * 500}-->"))
    assert "stand for more than 20 times its size" in refused(path)
    facts = "".join(FACT.format(f"http://e/&a;{i}") for i in range(100))
    path.write_text(start + RDF.format(facts))
    assert len(KnowledgeGraph.read(path).train) == 100


@pytest.mark.parametrize(
    "element",
    ['<e:r x="/>">', "<e:r x='</e:r>'>", "<e:r><![CDATA[</a>]]>", "<e:r><!--</a>--><?x </a>?>",
     '<e:r x=">" y="</">', "<e:r\n>/>"],
)  # fmt: skip
def test_deep_elements_are_counted_apart_from_what_looks_like_them(tmp_path, element):
    path = tmp_path / "deep.rdf"
    for n_times in (5000, 1000):
        path.write_text(RDF.format(element * n_times))
        with path.open("rb") as file, pytest.raises(DataError, match="within each other"):
            xml_bounds.BoundedXml(file, path).read()
        refused(path)


def test_an_element_with_very_many_attributes_is_refused(tmp_path):
    path = tmp_path / "wide.rdf"
    attributes = " ".join(f'e:r{i}="b"' for i in range(40_000))
    path.write_text(RDF.format(f"<e:C {attributes}/>"))
    assert "more than 10,000 attributes" in refused(path)


XML = {
    b"<e x='/>' y=\">\">": 1, b"<e>": 1, b"</e >": -1, b"<e x='&a;'/>": 0, b"<!-- <e> ' -->": 0,
    b"<!---->": 0, b"<![CDATA[</e>]]]>": 0, b"<?x </e> ??>": 0, b"it's > &a; &amp; &b;": 0,
    b"/>": 0, b"-->": 0,
}  # fmt: skip


@given(st.lists(st.sampled_from(list(XML)), max_size=20), st.lists(st.integers(1, 9), min_size=1))
def test_bounds_of_xml_are_the_same_however_blocks_fall(tokens, sizes):
    start = b"<!DOCTYPE x [<!-- <!ENTITY c 'x'> it's --><!ENTITY a '%s'>" % (b"x" * 50)
    whole = start + b'<!ENTITY b "&#38;" >]>' + b"<e>" * 30
    text = b"".join(tokens)
    whole += text
    stream = xml_bounds.BoundedXml(io.BytesIO(whole), Path("x.rdf"))
    blocks = [stream.read(size) for size in itertools.chain(sizes, itertools.repeat(sizes[0], 999))]
    assert b"".join(blocks) == whole
    assert stream._depth == 30 + sum(map(XML.get, tokens))
    assert stream._expanded == 50 * text.count(b"&a;") + len("&#38;") * text.count(b"&b;")


def test_triples_about_triples_are_told_apart_from_literals(tmp_path):
    path = tmp_path / "star.ttl"
    path.write_text(
        "@prefix e: <http://e/> .\ne:a e:r e:b ; e:n 3 .\ne:c e:says <<( e:a e:r e:b )>> .\n"
    )
    report = KnowledgeGraph.read(path).report
    assert (report.literals, report.quoted) == (1, 1)


@pytest.mark.parametrize("data", ["~nouser/x.tsv", "a" * 5000 + ".tsv", "a\0b.tsv"])
def test_odd_paths_are_refused_in_words(data):
    assert len(refused(data)) < 400


@pytest.fixture
def little_memory(monkeypatch):
    """A machine with 64 MiB to spare."""
    monkeypatch.setattr(room, "SMALL", 1 << 20)
    monkeypatch.setattr(room, "_free", lambda: 64 << 20)
    monkeypatch.setattr(compressed, "_LOOK", 1 << 20)


@pytest.mark.parametrize("suffix", ["", *(f".{suffix}" for suffix in PACK)])
@pytest.mark.parametrize("kind", ["tsv", "csv", "txt", "csv with a quote"])
def test_a_line_that_would_fill_the_memory_is_refused(tmp_path, little_memory, kind, suffix):
    raw = b"a" * (48 << 20) if kind != "csv with a quote" else b'a,r,"' + b"b\n" * (24 << 20)
    path = tmp_path / f"g.{kind[:3]}{suffix}"
    path.write_bytes(PACK[suffix[1:]](raw) if suffix else raw)
    said = refused(path)
    assert "of memory so far" in said or "never closed" in said or "expected 3 columns" in said
    if kind != "csv with a quote":
        assert "PATHE_MAX_MEMORY" in said


def test_names_that_would_fill_the_memory_are_refused_and_the_bound_can_be_lifted(
    tmp_path, little_memory, monkeypatch
):
    path = tmp_path / "g.tsv"
    path.write_bytes(b"".join(b"%0200d\tr\t%0200d\n" % (i, i + 1) for i in range(200_000)))
    grows = itertools.count(0, 8 << 20)  # whatever the allocator keeps
    monkeypatch.setattr(room, "_resident", lambda: next(grows))
    monkeypatch.setattr(room, "_free", lambda: 8 << 20)
    assert "PATHE_MAX_MEMORY" in refused(path)
    monkeypatch.setenv("PATHE_MAX_MEMORY", "0.01")
    assert "0.0 GiB are left" in refused(path)
    monkeypatch.setenv("PATHE_MAX_MEMORY", "8")
    assert len(KnowledgeGraph.read(path).train) == 200_000
    monkeypatch.setenv("PATHE_MAX_MEMORY", "much")
    assert "expected a number of GiB" in refused(path)


@pytest.mark.parametrize("name", ["g.ttl", "g.rdf"])
def test_a_long_prefix_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(columns, "_BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(room, "SMALL", 1 << 20)
    grows = itertools.count(0, 1 << 20)  # with each batch
    monkeypatch.setattr(room, "_resident", lambda: next(grows))
    monkeypatch.setattr(room, "_free", lambda: 4 << 20)
    path, prefix = tmp_path / name, "http://e/" + "x" * 9000
    facts = "".join(f'<e:r{i} rdf:resource="http://e/b"/>' for i in range(3000))
    if name == "g.rdf":
        path.write_text(RDF.replace("http://e/", prefix).format(f"<e:C>{facts}</e:C>"))
    else:
        lines = "".join(f"e:a e:r{i} e:b .\n" for i in range(3000))
        path.write_text(f"@prefix e: <{prefix}> .\n{lines}")
    assert "of memory so far" in refused(path)


@pytest.mark.parametrize("name", ["g.nt", "g.ttl", "g.nt.bz2"])
def test_a_triple_that_the_parser_can_not_hold_is_refused_soon(tmp_path, name):
    raw = b'<http://e/a> <http://e/r> "' + b"x" * (40 << 20)
    path = tmp_path / name
    path.write_bytes(PACK["bz2"](raw) if name.endswith("bz2") else raw)
    begin = time.process_time()
    assert "a line or a triple is longer than 16 MiB" in refused(path)
    assert time.process_time() - begin < 5
