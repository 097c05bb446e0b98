"""A prepared folder opens as the graph that its files make, or says why it doesn't."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from support.hostile import KINDS, lay
from support.places import ROOT
from support.prepared import (
    assert_same_graph,
    prepare_data,
    tiny_pieces,
    write_parts,
)

from pathe.core.errors import DataError, PatheError
from pathe.data import knowledge_graph, part_runs, prepared_folder, readers
from pathe.data.array_files import mapped, writable_map
from pathe.data.columns import ReadOptions
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph import preparation
from pathe.graph.indexing import PHASES
from pathe.graph.prepared import PreparedGraph


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_prepared_graph_is_the_graph_of_the_files(tmp_path, seed, held_out):
    data = write_parts(tmp_path / "data", seed, held_out)
    with tiny_pieces(rows=3 + seed, names=1 + seed):
        about = prepare_data(data, tmp_path / "out")
    opened = KnowledgeGraph.read(tmp_path / "out", every_relation=True)
    assert opened.stored("train", "valid", "test") is not None
    assert_same_graph(opened, KnowledgeGraph.read(data, every_relation=True))
    assert about["splits"] == {split: len(rows) for split, rows in opened.splits.items()}
    assert not (tmp_path / "out" / "unfinished").exists()


def test_pieces_of_other_sizes_give_the_same_bytes(tmp_path):
    data = write_parts(tmp_path / "data", 3, True)
    with tiny_pieces(rows=4, names=2):
        one = prepare_data(data, tmp_path / "one")
    assert prepare_data(data, tmp_path / "other") == one


@pytest.mark.parametrize("data", ["europe.csv", "films.csv"])
def test_one_file_and_a_split_of_it(tmp_path, data):
    path = ROOT / "examples" / data
    prepare_data(path, tmp_path / "whole")
    assert_same_graph(KnowledgeGraph.read(tmp_path / "whole"), KnowledgeGraph.read(path))
    shares = (0.8, 0.1, 0.1)
    prepare_data(path, tmp_path / "split", split=shares)
    expected = KnowledgeGraph.read(path, split=shares)
    assert_same_graph(KnowledgeGraph.read(tmp_path / "split"), expected)
    # or split it after preparing
    later = KnowledgeGraph.read(tmp_path / "whole", split=shares)
    assert later.fingerprint() == expected.fingerprint()
    assert_same_graph(later, expected)
    with pytest.raises(DataError, match="its own splits"):
        KnowledgeGraph.read(tmp_path / "split", split=shares)


RDF = """@prefix ex: <http://example.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
ex:{0} ex:near ex:{1} ; rdfs:label "{0} town"@en, "Ort {0}"@de .
ex:{1} ex:near ex:c ; rdfs:label "same" ; ex:height 3 .
ex:c rdfs:label "same" .
ex:unused rdfs:label "nowhere" .
ex:near rdfs:label "is near" .
"""


def test_labels_and_prefixes_of_rdf_parts(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for i, pair in enumerate(("ab", "bd", "ea")):
        (data / f"part-{i}.ttl").write_text(RDF.format(*pair))
    with tiny_pieces():
        prepare_data(data, tmp_path / "out", language="de,en")
    opened = KnowledgeGraph.read(tmp_path / "out")
    read = KnowledgeGraph.read(data, options=ReadOptions(language="de,en"))
    assert_same_graph(opened, read)
    for name in ("prefixes", "base"):
        assert getattr(opened.names, name) == getattr(read.names, name)
    assert opened.names.labelled.to_pylist() == read.names.labelled.to_pylist()
    assert opened.names.labels.to_pylist() == read.names.labels.to_pylist()
    assert opened.entities.exact("Ort a") == "http://example.org/a"
    assert opened.entities.exact("ex:c") == "http://example.org/c"
    assert opened.relations.exact("is near") == "http://example.org/near"
    assert opened.names.with_label("same") == read.names.with_label("same")
    more = ReadOptions(prefixes=(("other", "http://example.org/"),))
    again = KnowledgeGraph.read(tmp_path / "out", options=more)
    assert again.entities.exact("other:a") == "http://example.org/a"
    with pytest.raises(DataError, match="--language"):
        KnowledgeGraph.read(tmp_path / "out", options=ReadOptions(language="en"))


class Killed(BaseException):
    """Ends a run as a signal would: nothing catches it."""


def killing(phase: str, calls: int):
    """Shows a phase; ends the run in it, after some calls of the progress function."""

    @contextmanager
    def show(title):
        left = calls

        def progress(done, total):
            nonlocal left
            left -= 1
            if title == phase and left < 0:
                raise Killed

        yield progress
        if title == phase:
            raise Killed  # before it is written down that the phase is done

    return show


EVERY = ["reading", "names", "triples", *PHASES, "checksums"]


@pytest.mark.parametrize("phase", EVERY)
@pytest.mark.parametrize("calls", [1, 1000])
def test_a_run_that_was_killed_continues(tmp_path, phase, calls):
    data = write_parts(tmp_path / "data", 5, True)
    complete = phase == "checksums" and calls == 1000  # killed after the manifest was written
    seen = []

    @contextmanager
    def show(title):
        seen.append(title)
        yield lambda done, total: None

    with tiny_pieces(rows=12, names=8):
        whole = prepare_data(data, tmp_path / "whole")
        with pytest.raises(Killed):
            prepare_data(data, tmp_path / "out", killing(phase, calls))
        if not complete:
            with pytest.raises(DataError, match=r"interrupted.*again"):
                KnowledgeGraph.read(tmp_path / "out", every_relation=True)
        assert prepare_data(data, tmp_path / "out", show) == whole
    # finished phases aren't repeated
    assert seen == (["checking"] if complete else EVERY[EVERY.index(phase) :])
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {path.name for path in (tmp_path / "whole").iterdir()}


def test_parts_that_were_read_are_not_read_again(tmp_path):
    data = write_parts(tmp_path / "data", 1, False)
    bad = data / "part-00002.tsv"
    good = bad.read_text(encoding="utf-8")
    bad.write_text(good + "only two\tcolumns\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"part-00002.tsv, line \d+: expected 3 columns"):
        prepare_data(data, tmp_path / "out")
    bad.write_text(good, encoding="utf-8")  # corrected: the run continues
    with mock.patch.object(part_runs, "read_batches", wraps=part_runs.read_batches) as read:
        prepare_data(data, tmp_path / "out")
    assert [call.args[0].name for call in read.call_args_list] == ["part-00002.tsv"]
    assert_same_graph(KnowledgeGraph.read(tmp_path / "out"), KnowledgeGraph.read(data))


def test_a_process_that_was_killed_leaves_what_it_has_read(tmp_path):
    data = write_parts(tmp_path / "data", 2, False)
    code = """
import os, signal, sys
from pathe.data import part_runs
before, read = [], part_runs.read_batches
def killed(path, *rest):
    before.append(path)
    for batch in read(path, *rest):
        if len(before) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
part_runs.read_batches = killed
sys.argv = ["pathe", "prepare", *sys.argv[1:]]
from pathe.cli.main import main
main()
"""
    command = [sys.executable, "-c", code, str(data), str(tmp_path / "out")]
    assert subprocess.run(command, env=os.environ).returncode == -signal.SIGKILL
    with mock.patch.object(part_runs, "read_batches", wraps=part_runs.read_batches) as read:
        prepare_data(data, tmp_path / "out")
    assert read.call_count == 1
    assert_same_graph(KnowledgeGraph.read(tmp_path / "out"), KnowledgeGraph.read(data))


def test_changed_data_is_not_mixed_with_what_was_read(tmp_path):
    data = write_parts(tmp_path / "data", 1, False)
    with pytest.raises(Killed):
        prepare_data(data, tmp_path / "out", killing("names", 0))
    part = data / "part-00000.tsv"
    part.write_text(part.read_text(encoding="utf-8") + "x\ty\tz\n", encoding="utf-8")
    with pytest.raises(DataError, match="data has changed"):
        prepare_data(data, tmp_path / "out")
    with pytest.raises(DataError, match="other data or options"):
        prepare_data(data, tmp_path / "out", on_error="skip")


@pytest.mark.parametrize("kind", ["parts with a split", "file with a split", "openke", "neo4j"])
def test_a_graph_is_not_complete_once_its_data_has_changed(tmp_path, kind):
    data, options = tmp_path / "data", {}
    if kind in ("openke", "neo4j"):
        lay(KINDS[kind], {}, data)
        changed = data / ("train2id.txt" if kind == "openke" else "links.csv")
        content = changed.read_bytes().replace(b"0 1 0", b"1 0 0").replace(b"KNOWS,3", b"HATES,3")
    else:
        write_parts(data, 1, False)
        changed, options = data / "part-00000.tsv", {"split": (0.8, 0.1, 0.1)}
        content = changed.read_bytes() + b"x\ty\tz\n"
    if kind == "file with a split":
        data = changed
    prepare_data(data, tmp_path / "out", **options)
    prepare_data(data, tmp_path / "out", **options)  # which checks it
    changed.write_bytes(content)
    os.utime(changed, ns=(1, 1))
    with pytest.raises(DataError, match="data has changed since this graph was prepared"):
        prepare_data(data, tmp_path / "out", **options)


def folder_of(kind, place):
    """Writes a folder that is read as a whole; returns it with the options to prepare it."""
    if kind in ("openke", "neo4j"):
        return lay(KINDS[kind], {}, place), {}
    if kind == "parts":
        return write_parts(place, 1, False), {"split": (0.8, 0.1, 0.1)}
    place.mkdir()
    (place / "train.tsv").write_bytes((ROOT / "examples" / "europe.csv").read_bytes())
    return place, {"split": (0.8, 0.1, 0.1), "delimiter": ","}


FOLDERS = ("parts", "one split", "openke", "neo4j")


@pytest.mark.parametrize("kind", FOLDERS)
def test_files_that_no_reader_takes_may_come_and_go(tmp_path, kind):
    data, options = folder_of(kind, tmp_path / "data")

    @contextmanager
    def show(title):
        yield lambda done, total: None
        (data / "prepare.log").write_text(title)

    about = prepare_data(data, tmp_path / "out", show, **options)
    for name in ("notes.md", ".DS_Store", ".hidden.tsv", "_SUCCESS"):
        (data / name).write_text("mine")
    if kind != "parts":
        (data / "notes.txt").write_text("mine")
    assert prepare_data(data, tmp_path / "out", **options) == about


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("phase", ["known triples", None])
def test_folders_of_versions_without_stamps_are_accepted(tmp_path, kind, phase):
    data, options = folder_of(kind, tmp_path / "data")
    with (
        mock.patch.object(preparation, "_stamps", return_value=[]),
        pytest.raises(Killed) if phase else nullcontext(),
    ):
        prepare_data(data, tmp_path / "out", *([killing(phase, 0)] if phase else []), **options)
    about = prepare_data(data, tmp_path / "out", **options)
    assert bool(about["stamps"]) == bool(phase)


@pytest.mark.parametrize("options", [{}, {"split": (0.8, 0.1, 0.1)}])
def test_data_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, options):
    data = write_parts(tmp_path / "data", 1, False)
    part = data / "part-00001.tsv"

    def changing(read):
        def reads(path, *args):
            found = read(path, *args)
            yield from found if read is readers.read_batches else [found]
            if path == part:
                path.write_bytes(path.read_bytes() + b"x\ty\tz\n")

        return reads

    def columns(*args):
        [table] = changing(readers.read_columns)(*args)
        return table

    monkeypatch.setattr(part_runs, "read_batches", changing(readers.read_batches))
    monkeypatch.setattr(knowledge_graph, "read_columns", columns)
    with pytest.raises(DataError, match="has changed while it was read"):
        prepare_data(data, tmp_path / "out", **options)
    monkeypatch.undo()
    prepare_data(data, tmp_path / "out", **options)
    whole = KnowledgeGraph.read(data, **options)
    assert KnowledgeGraph.read(tmp_path / "out").fingerprint() == whole.fingerprint()


@pytest.mark.parametrize("options", [{}, {"split": (0.8, 0.1, 0.1)}])
def test_data_that_changes_while_it_is_indexed_is_refused(tmp_path, options):
    data = write_parts(tmp_path / "data", 1, False)

    @contextmanager
    def show(title):
        yield lambda done, total: None
        if title == "known triples":
            os.utime(data / "part-00002.tsv", ns=(1, 1))

    with pytest.raises(DataError, match="the data has changed since"):
        prepare_data(data, tmp_path / "out", show, **options)
    assert not (tmp_path / "out" / "prepared.json").exists()


def test_only_one_process_prepares_a_folder(tmp_path):
    data = write_parts(tmp_path / "data", 1, False)

    @contextmanager
    def show(title):
        with pytest.raises(PatheError, match="another process"):
            prepare_data(data, tmp_path / "out")
        yield lambda done, total: None

    prepare_data(data, tmp_path / "out", show)


@pytest.fixture
def prepared(tmp_path):
    data = write_parts(tmp_path / "data", 4, False)
    prepare_data(data, tmp_path / "out")
    return tmp_path / "out"


def test_damage_is_an_error(prepared):
    path = prepared / "edges.relations_M.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    with pytest.raises(DataError, match=r"damaged: edges.relations_M.npy should have [\d,]+ bytes"):
        KnowledgeGraph.read(prepared)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        KnowledgeGraph.read(prepared)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # found by looking at all bytes
    with mock.patch.object(prepared_folder, "_AT_OPENING", 0):  # as of a large folder
        assert KnowledgeGraph.read(prepared).n_entities
    with pytest.raises(DataError, match=r"the content of edges.relations_M.npy has changed"):
        prepare_data(prepared.parent / "data", prepared)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about | {"format_version": 2}, r"version 1, found .* of version 2"),
        (lambda about: about | {"n_entities": 7}, "prepared.json has been changed"),
        (lambda about: [], "prepared.json can't be read"),
    ],
)
def test_another_version_or_a_changed_manifest_is_an_error(prepared, change, message):
    path = prepared / "prepared.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError, match=message):
        KnowledgeGraph.read(prepared)


def test_a_truncated_manifest_is_an_error(prepared):
    path = prepared / "prepared.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(DataError, match="damaged"):
        KnowledgeGraph.read(prepared)


def test_relations_that_train_lacks(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    (data / "valid.tsv").write_text("a\tr\tc\n")
    (data / "test.tsv").write_text("c\tr\ta\nc\tnew\td\n")
    prepare_data(data, tmp_path / "every")
    with pytest.raises(DataError, match="'new' isn't among the training relations"):
        KnowledgeGraph.read(tmp_path / "every")
    opened = KnowledgeGraph.read(tmp_path / "every", every_relation=True)
    assert_same_graph(opened, KnowledgeGraph.read(data, every_relation=True))
    prepare_data(data, tmp_path / "some", on_error="skip")
    read = KnowledgeGraph.read(data, options=ReadOptions(on_error="skip"))
    assert_same_graph(KnowledgeGraph.read(tmp_path / "some"), read)
    assert read.n_entities == 3


def test_a_changed_graph_is_not_taken_from_the_folder(prepared):
    kg = KnowledgeGraph.read(prepared)
    fewer = replace(kg, train=kg.train[:-1])
    assert fewer.stored("train") is None
    assert fewer.fingerprint() != kg.fingerprint()
    assert PreparedGraph(fewer).graph.n_triples == len(kg.train) - 1
    whole = PreparedGraph(kg)
    less = whole.remove(kg.train[:2])
    assert less.edges.triples_M.max() == len(kg.train) - 3
    assert len(less.arrivals.entry_M) == 2 * (len(kg.train) - 2)
    assert not less.known().contains(kg.train[:2]).any()
    more, _ = whole.add(torch.tensor([[0, 0, kg.n_entities]]), kg.n_entities + 1)
    assert more.edges.n_entities == kg.n_entities + 1


def test_arrays_are_maps_that_nobody_can_write_to(prepared):
    kg = KnowledgeGraph.read(prepared)
    maps = (prepared / "train.npy").stat().st_ino
    lines = Path("/proc/self/maps").read_text().splitlines()
    assert any(f" {maps} " in line and "r--s" in line for line in lines)
    assert kg.train.sum() > 0


def test_a_grail_pair_is_refused(tmp_path):
    for name in ("g", "g_ind"):
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / name / f"{split}.txt").write_text("a\tr\tb\n")
    with pytest.raises(DataError, match="GraIL pair"):
        prepare_data(tmp_path / "g", tmp_path / "out")


def test_a_prepared_folder_is_not_prepared_again(prepared, tmp_path):
    with pytest.raises(DataError, match="is prepared already"):
        prepare_data(prepared, tmp_path / "again")
    other = write_parts(tmp_path / "other", 9, False)
    with pytest.raises(DataError, match="holds a graph from other data"):
        prepare_data(other, prepared)


def test_a_graph_without_room_for_one_number_per_row_is_sorted_by_columns():
    from pathe.graph.indexing import _sorted_unique

    rows = np.random.default_rng(0).integers(0, 4, (3, 50))
    fast = _sorted_unique(list(rows), 0, 4, (4, 4))
    slow = _sorted_unique(list(rows), 0, 4, (1 << 40, 1 << 40))
    for one, other in zip(fast, slow, strict=True):
        assert one.tolist() == other.tolist()


def test_a_small_damaged_folder_is_refused_when_it_is_opened(tmp_path):
    """A large one is only when `pathe prepare` checks it."""
    out = tmp_path / "out"
    prepare_data(write_parts(tmp_path / "data", 1, held_out=True), out)
    draw = random.Random(0)
    for path in sorted(out.glob("*.npy")):
        raw = path.read_bytes()
        place = draw.randrange(len(raw))
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :])
        with pytest.raises(DataError, match=re.escape(path.name)):
            KnowledgeGraph.read(out)
        with (
            mock.patch.object(prepared_folder, "_AT_OPENING", 0),
            pytest.raises(DataError, match=re.escape(path.name)),
        ):
            prepare_data(tmp_path / "data", out)
        path.write_bytes(raw)
    KnowledgeGraph.read(out)


def test_a_large_folder_with_a_damaged_header_is_refused_when_it_is_needed(tmp_path):
    out = tmp_path / "out"
    prepare_data(write_parts(tmp_path / "data", 1, held_out=True), out)
    path = out / "edges.relations_M.npy"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with (
        mock.patch.object(prepared_folder, "_AT_OPENING", 0),
        pytest.raises(DataError, match=r"edges\.relations_M\.npy: not a readable"),
    ):
        _ = PreparedGraph(KnowledgeGraph.read(out)).edges


@pytest.mark.parametrize("raw", [b"{", b"[]", b"[" * 100_000, b"\xff"])
def test_a_damaged_state_is_refused(tmp_path, raw):
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    (tmp_path / "out" / "unfinished" / "state.json").write_bytes(raw)
    with pytest.raises(DataError, match=r"state\.json: can't be read"):
        prepare_data(write_parts(tmp_path / "data", 1, held_out=False), tmp_path / "out")


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"\xff", b"[]"])
def test_a_damaged_manifest_is_refused(tmp_path, raw):
    (tmp_path / "prepared.json").write_bytes(raw)
    with pytest.raises(DataError, match=r"prepared\.json can't be read"):
        KnowledgeGraph.read(tmp_path)


def test_a_map_for_writing_has_its_room_on_the_disk(tmp_path):
    """A page without any would end the process by a signal."""
    found = writable_map(tmp_path / "a.npy", np.int64, (100_000,))
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 800_000
    assert not found.any()
    found[:] = np.arange(100_000)
    found.flush()
    np.testing.assert_array_equal(mapped(tmp_path / "a.npy"), np.arange(100_000))
