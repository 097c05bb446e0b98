"""Checkpoints: as they were written, or refused."""

from __future__ import annotations

import random
import resource

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import toy
from support.runs import train

from pathe.core.errors import ModelError, PatheError
from pathe.training import run_folder
from pathe.training.checkpoints import read_checkpoint, write_checkpoint

STATE = {"model": {"w": torch.arange(6.0)}, "epoch": 3, "words": "a, b", "none": None}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "last.ckpt"
    write_checkpoint(path, STATE)
    return path


def test_a_checkpoint_is_read_back_also_by_torch_alone(written):
    for found in (read_checkpoint(written), torch.load(written, weights_only=True)):
        assert found.keys() == STATE.keys()
        assert torch.equal(found["model"]["w"], STATE["model"]["w"])


def test_a_checkpoint_of_an_earlier_version_has_no_digest(tmp_path):
    torch.save(STATE, tmp_path / "old.ckpt")
    assert read_checkpoint(tmp_path / "old.ckpt")["epoch"] == 3


@given(st.data())
def test_no_flipped_bit_goes_unnoticed(written, data):
    raw = bytearray(written.read_bytes())
    place, bit = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 7))
    raw[place] ^= 1 << bit
    damaged = written.with_name("damaged.ckpt")
    damaged.write_bytes(raw)
    with pytest.raises(ModelError, match=r"damaged\.ckpt: can't resume: differs"):
        read_checkpoint(damaged)


@given(st.data())
def test_no_cut_goes_unnoticed(written, data):
    raw = written.read_bytes()
    damaged = written.with_name("damaged.ckpt")
    damaged.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(ModelError, match=r"damaged\.ckpt"):
        read_checkpoint(damaged)


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
def test_a_run_does_not_go_on_from_a_damaged_checkpoint(tmp_path, name):
    train(toy(), tmp_path / "run", max_epochs=2)
    path, draw = tmp_path / "run" / "checkpoints" / name, random.Random(name)
    whole = path.read_bytes()
    for _ in range(4):
        raw = bytearray(whole)
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        path.write_bytes(raw)
        with pytest.raises(ModelError, match=name.replace(".", r"\.")):
            train(toy(), tmp_path / "run", resume=True, max_epochs=2)


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_is_an_error_and_leaves_the_checkpoint_before_intact(tmp_path, exists):
    path = tmp_path / "last.ckpt"
    if exists:
        write_checkpoint(path, STATE)
    raw = path.read_bytes() if exists else None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(PatheError, match=r"last\.ckpt: the disk is full .*--resume") as caught:
            write_checkpoint(path, STATE | {"large": torch.zeros(1 << 17)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ("is intact" if exists else "doesn't exist yet") in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"] * exists
    if exists:
        assert path.read_bytes() == raw


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("config.yaml", b"\xff\xfe"),
        ("config.yaml", b"task: [link"),
        ("config.yaml", b"just words"),
        ("config.yaml", b"seed: " + b"9" * 5000),
        ("config.yaml", b"? [1, 2]\n: x\n"),
        ("config.yaml", b""),
        ("metrics.jsonl", b"\xff\n"),
        ("metrics.jsonl", b"[1]\n"),
        ("metrics.jsonl", b'{"epoch": "x"}\n'),
        ("metrics.jsonl", b"[" * 100_000 + b"\n"),
        ("checkpoints/last.ckpt", b""),
        ("checkpoints/best.ckpt", b""),
    ],
)
def test_a_damaged_run_folder_is_refused_in_words(tmp_path, name, raw):
    train(toy(), tmp_path / "run", max_epochs=1)
    (tmp_path / "run" / name).write_bytes(raw)
    with pytest.raises(PatheError, match=name.rsplit("/", maxsplit=1)[-1]) as caught:
        train(toy(), tmp_path / "run", resume=True, max_epochs=2 - ("best" in name))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("raw", [b'{"dpoch": 0, "loss": 1.0}\n', b'{"epoch": 0, "loss": "x"}\n'])
def test_damaged_metrics_are_refused_in_words_when_only_the_report_is_left(tmp_path, raw):
    train(toy(), tmp_path / "run", max_epochs=1)
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "metrics.jsonl").write_bytes(raw)
    with pytest.raises(PatheError, match=r"metrics.jsonl: line 1 isn't a record of metrics"):
        train(toy(), tmp_path / "run", resume=True, max_epochs=1)


def test_half_a_line_of_metrics_is_left_out(tmp_path):
    train(toy(), tmp_path / "run", max_epochs=1)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "lo')
    assert len(run_folder.read_metrics(tmp_path / "run")) == 1
