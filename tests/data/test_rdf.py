"""RDF files -> columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.readers import COMPRESS, read, refused

TRIPLES = [
    ("http://x/a", "http://x/p", "http://x/b"),
    ("http://x/é", "http://x/p", "_:n1"),
    ("_:n1", "http://x/q", "http://x/a"),
]
RDF = {
    "x.nt": "<http://x/a> <http://x/p> <http://x/b> .\n# a comment\n"
    '<http://x/a> <http://x/p> "a literal"@en .\n'
    "<http://x/é> <http://x/p> _:n1 .\n_:n1 <http://x/q> <http://x/a> .\n",
    "x.nq": "<http://x/a> <http://x/p> <http://x/b> <http://g> .\n"
    '<http://x/a> <http://x/p> "1" <http://g> .\n'
    "<http://x/é> <http://x/p> _:n1 .\n_:n1 <http://x/q> <http://x/a> .\n",
    "x.ttl": "@prefix : <http://x/> .\n:a :p :b , 5 .\n:é :p _:n1 .\n_:n1 :q :a .\n",
    "x.rdf": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/">'
    '<rdf:Description rdf:about="http://x/a"><x:p rdf:resource="http://x/b"/><x:p>lit</x:p>'
    '</rdf:Description><rdf:Description rdf:about="http://x/é"><x:p rdf:nodeID="n1"/>'
    '</rdf:Description><rdf:Description rdf:nodeID="n1"><x:q rdf:resource="http://x/a"/>'
    "</rdf:Description></rdf:RDF>",
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", RDF)
def test_rdf_formats_agree(tmp_path: Path, name: str, suffix: str) -> None:
    raw = RDF[name].encode()
    rows, report = read(tmp_path / f"{name}{suffix}", COMPRESS[suffix](raw))
    assert rows == TRIPLES
    assert (report.rows, report.literals) == (3, 1)


def test_rdf_over_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathe.data.columns._BATCH", 2)
    assert read(tmp_path / "x.nt", RDF["x.nt"].encode())[0] == TRIPLES


def test_unlabelled_nodes_are_the_same_each_time(tmp_path: Path) -> None:
    raw = b"@prefix : <http://x/> . :a :p [ :q :b ] , [ :q :c ] ."
    # Many times: one random id in 16 is shorter than the others.
    first, *others = (read(tmp_path / "x.ttl", raw)[0] for _ in range(100))
    assert all(other == first for other in others)
    assert {row[2] for row in first if row[0] == "http://x/a"} == {"_:x-0", "_:x-1"}


def test_bad_rdf(tmp_path: Path) -> None:
    bad = RDF["x.nt"].encode() + b"<http://x/a> <http://x/p> oops .\n\xff\n"
    assert "x.nt, line 6: " in refused(tmp_path / "x.nt", bad)
    rows, report = read(tmp_path / "x.nt", bad, on_error="skip")
    assert rows == TRIPLES
    assert report.skipped == 2
    assert "line 6" in report.first_skipped
    message = refused(tmp_path / "x.ttl", RDF["x.ttl"].encode() + b":a :p .\n", on_error="skip")
    assert "line 5" in message
    assert "can't be skipped" in message
    refused(tmp_path / "x.rdf", b"<rdf:RDF>", on_error="skip")
    only_literals = b'<http://x/a> <http://x/p> "b" .\n'
    message = refused(tmp_path / "x.nt", only_literals * 2)
    assert "contains no triples; 2 had literals" in message


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    for option in ({"columns": ("1", "2", "3")}, {"header": True}, {"delimiter": ","}):
        message = refused(tmp_path / "x.nt", RDF["x.nt"].encode(), **option)
        assert f"is RDF: --{next(iter(option))} doesn't apply" in message
    assert "is Parquet: --header doesn't" in refused(tmp_path / "x.parquet", b"", header=True)
