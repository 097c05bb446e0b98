from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch
import yaml
from support.graphs import kg_of
from support.models import any_graph_artifact, artifact_of

from pathe.core.config import configure
from pathe.core.errors import ModelError, PatheError
from pathe.data.vocabulary import Vocabulary
from pathe.model import artifact as artifact_module
from pathe.model.artifact import Artifact, load_model, save_model
from pathe.model.builder import build, build_model, weight_shapes

NAMES = ["born in", "größer als", 'says "hi"', "日本"]


@pytest.fixture
def folder(tmp_path):
    config = configure(settings={"dim": 8, "feedforward": 8, "aggregator": "mean"})
    relations = Vocabulary(NAMES, kind="relation")
    save_model(
        tmp_path / "model", Artifact(build_model(config, 4), config, relations), {"mrr": 0.5}
    )
    return tmp_path / "model"


def test_a_model_comes_back_as_it_was(folder):
    artifact = load_model(folder)
    config = artifact.config
    assert config == configure(settings={"dim": 8, "feedforward": 8, "aggregator": "mean"})
    assert list(artifact.relations) == sorted(NAMES, key=str.encode)
    first = build_model(config, 4).state_dict()
    for name, tensor in artifact.model.state_dict().items():
        assert torch.equal(tensor, first[name])
    assert "mrr | 0.5" in (folder / "README.md").read_text()
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "config.json", "model.safetensors", "relations.json",
    ]  # fmt: skip
    assert load_model(folder.parent).config == config  # a run holds a model


@pytest.mark.parametrize(
    "more",
    [
        {"relation_vectors": "graph", "bridge": "paths"}, {"aggregator": "mean"},
        {"relation_vectors": "both", "bridge": "paths"}, {"aggregator": "lstm"},
        {"bridge": "paths", "task": "multi"}, {"aggregator": "transformer-joint"},
    ],
    ids=str,
)  # fmt: skip
def test_shapes_are_those_of_the_built_model(more):
    config = configure(settings={"dim": 8, "feedforward": 8} | more)
    expected = {name: weight.shape for name, weight in build(config, 3).state_dict().items()}
    assert weight_shapes(config, 3) == expected


def test_the_card_is_in_the_hubs_format(folder):
    artifact = load_model(folder)
    facts = {"data": "a: b", "task": "link", "mrr": 0.5, "hits_at_10": 0.7,
             "protocol": "sampled:50"}  # fmt: skip
    save_model(folder, artifact, facts)
    _, header, text = (folder / "README.md").read_text().split("---\n", 2)
    found = yaml.safe_load(header)
    assert found["library_name"] == "pathe"
    [result] = found["model-index"][0]["results"]
    assert result["dataset"]["name"] == "a: b"
    assert [(m["type"], m["value"]) for m in result["metrics"]] == [
        ("mrr", 0.5),
        ("hits_at_10", 0.7),
    ]
    assert result["metrics"][0]["name"] == "mrr, sampled:50 ranking"
    assert "| mrr | 0.5 |" in text
    save_model(folder, artifact)
    assert "model-index" not in (folder / "README.md").read_text()


def test_saving_again_replaces_the_model_and_keeps_other_files(folder):
    artifact = load_model(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "more").mkdir()
    (folder / "more" / "x").write_text("x")
    save_model(folder, artifact, {"mrr": 0.25})
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "more" / "x").read_text() == "x"
    assert "mrr | 0.25" in (folder / "README.md").read_text()
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_saving_into_a_folder_of_something_else_is_refused(folder, tmp_path):
    artifact = load_model(folder)
    other = tmp_path / "docs"
    other.mkdir()
    save_model(other, artifact)  # an empty one is fine
    (other / "config.json").unlink()
    (other / "thesis.txt").write_text("all of it")
    with pytest.raises(PatheError, match="new or empty folder"):
        save_model(other, artifact)
    assert (other / "thesis.txt").read_text() == "all of it"
    with pytest.raises(PatheError, match="new or empty folder"):
        save_model(tmp_path, artifact)  # a run: its model lies in it
    assert load_model(tmp_path).config == artifact.config
    site = tmp_path / "site"
    site.mkdir()
    (site / "config.json").write_text('{"name": "my site"}')
    (site / "README.md").write_text("mine")
    with pytest.raises(ModelError, match="not written by PathE"):
        save_model(site, artifact)
    assert (site / "README.md").read_text() == "mine"


def test_saving_to_the_current_folder_and_through_a_link(folder, tmp_path, monkeypatch):
    artifact = load_model(folder)
    (tmp_path / "link").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    save_model(tmp_path / "link", artifact, {"mrr": 0.125})
    assert (tmp_path / "link").is_symlink()
    assert "mrr | 0.125" in (folder / "README.md").read_text()
    monkeypatch.chdir(folder)
    save_model(".", artifact, {"mrr": 0.25})
    assert "mrr | 0.25" in (folder / "README.md").read_text()
    load_model(folder)


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "copies"])
def test_a_save_that_is_killed_between_two_files_leaves_the_old_model_or_the_new(
    tmp_path, monkeypatch, links
):
    """Weights, names and settings are three files: no two of them may be of different models."""
    old, new = (artifact_of(kg_of(rows)) for rows in ("a r b; b s a", "a r b; b s a; a t a"))
    if not links:

        def refuse(*_):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    names = set()
    for n_renames in range(4):
        folder = tmp_path / str(n_renames)
        save_model(folder, old)
        replace_file, done = os.replace, []

        def killed(source, target, replace_file=replace_file, done=done, most=n_renames):
            if len(done) == most:
                raise KeyboardInterrupt
            done.append(target)
            replace_file(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                save_model(folder, new)
        found = load_model(folder)
        names.add(len(found.relations))
        expected = old if len(found.relations) == 2 else new
        for key, weight in expected.model.state_dict().items():
            assert torch.equal(found.model.state_dict()[key], weight)
        save_model(folder, new)
        assert len(load_model(folder).relations) == 3
        assert sorted(p.name for p in folder.iterdir()) == sorted(artifact_module.FILES)
    assert names == {2}  # settings are last


def test_a_failed_save_keeps_the_old_model(folder, monkeypatch):
    artifact = load_model(folder)
    monkeypatch.setattr("pathe.model.artifact._card", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(folder, artifact)
    load_model(folder)
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def spoil_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def flip_a_bit(folder):
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def change_config(folder, **changes):
    about = json.loads((folder / "config.json").read_text())
    about["config"] |= changes.pop("config", {})
    (folder / "config.json").write_text(json.dumps(about | changes))


def sign(folder, **changes):
    """Changes what config.json says, its digest made to fit."""
    about = json.loads((folder / "config.json").read_text()) | changes
    about["sha256"]["config.json"] = artifact_module._digest_settings(about)
    (folder / "config.json").write_text(json.dumps(about))


def rename_a_relation(folder):
    path = folder / "relations.json"
    path.write_text(path.read_text().replace("born in", "born at"))


def old(folder):
    """The folder as format 1 had it."""
    about = json.loads((folder / "config.json").read_text())
    del about["temperatures"]
    about |= {"format": 1, "sha256": about["sha256"]["model.safetensors"]}
    (folder / "config.json").write_text(json.dumps(about))
    return folder


def test_a_folder_of_the_first_format_still_loads(folder):
    before = load_model(folder)
    after = load_model(old(folder))
    assert after.temperatures == {}
    assert after.relations == before.relations
    assert after.config == before.config


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_weights, "truncated or modified"),
        (flip_a_bit, "truncated or modified"),
        (lambda f: (f / "model.safetensors").unlink(), "No such file"),
        (lambda f: (f / "relations.json").unlink(), "No such file"),
        (lambda f: (f / "relations.json").write_text("[1"), "truncated or modified"),
        (lambda f: rename_a_relation(f), "truncated or modified"),
        (lambda f: (f / "config.json").write_text('{"format": 2'), "not valid JSON"),
        (lambda f: (f / "config.json").write_text('{"format": 2, "config": {}}'), "no digests"),
        (lambda f: change_config(f, temperatures={"link": 9.0}), "modified"),
        (lambda f: change_config(f, config={"heads": 1}), "modified"),
        (lambda f: (f / "config.json").write_text("{}"), "not written by PathE"),
        (lambda f: (f / "config.json").unlink(), "not a model folder"),
        (lambda f: change_config(f, format=99), "format 99.*update"),
        (lambda f: change_config(old(f), config={"dim": 16}), "doesn't fit"),
        (lambda f: (old(f) / "relations.json").write_text("[1"), "not valid JSON"),
        (lambda f: (old(f) / "relations.json").write_text('["a"]'), "expected 4 names"),
        (lambda f: (old(f) / "relations.json").write_text("[1, 2, 3, 4]"), "distinct names"),
        (
            lambda f: (old(f) / "relations.json").write_text('["a", "a", "b", "c"]'),
            "distinct names",
        ),
        (lambda f: (old(f) / "relations.json").write_text('["b", "a", "c", "d"]'), "sorted"),
        (lambda f: (old(f) / "relations.json").write_text(r'["a", "b", "c", "\ud800"]'), "names"),
        (lambda f: (old(f) / "relations.json").write_text("[" * 100_000), "not valid JSON"),
        (lambda f: change_config(old(f), sha256=None), "no digest"),
        (lambda f: sign(f, temperatures={"link": 0}), "above 0"),
        (lambda f: sign(f, temperatures={"link": "hot"}), "above 0"),
        (lambda f: sign(f, temperatures=None), "above 0"),
    ],
)
def test_a_spoilt_folder_is_refused_in_words(folder, spoil, words):
    spoil(folder)
    with pytest.raises(ModelError, match=words):
        load_model(folder)


def test_a_missing_model_folder_is_an_error(tmp_path):
    with pytest.raises(ModelError, match="pathe train"):
        load_model(tmp_path)


def crafted(folder, **config):
    """Changes the settings in a model folder, the digest made to fit."""
    about = json.loads((folder / "config.json").read_text())
    sign(folder, config=about["config"] | config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"layers": 100_000}, "layers must be at least 1 and at most 100"),
        ({"bridge": "paths", "bridge_hops": 10**9}, "bridge_hops must be"),
        ({"test_paths": 99_999_999}, "test_paths must be"),
        ({"max_hops": 10**6}, "max_hops must be"),
        ({"layers": 100, "dim": 16_384, "feedforward": 65_536}, "doesn't fit config.json"),
        ({"relation_vectors": "both", "bridge_dim": 4096, "bridge_hops": 100}, "doesn't fit"),
        ({"task": "relation"}, "doesn't fit config.json: link_head"),
    ],
)
def test_crafted_sizes_are_refused_before_any_weight_is_built(folder, monkeypatch, config, words):
    crafted(folder, **config)
    monkeypatch.setattr(artifact_module, "build", lambda *given: pytest.fail("built"))
    with pytest.raises(PatheError, match=words):
        load_model(folder)


def test_files_that_are_too_large_for_the_model_are_refused_before_they_are_read(folder):
    for name, size in (("model.safetensors", 1 << 40), ("relations.json", 1 << 40)):
        path = folder / name
        raw = path.read_bytes()
        with path.open("ab") as file:
            file.truncate(size)  # a sparse file
        with pytest.raises(ModelError, match=rf"{name}: expected at most [\d,]+ bytes; got"):
            load_model(folder)
        path.write_bytes(raw)
    load_model(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "relations.json"])
def test_only_regular_files_are_read(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match=r"expected a file|not a model folder"):
        load_model(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=r"expected a file|not a model folder"):
        load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    artifact = any_graph_artifact()
    next(artifact.model.parameters()).data.flatten()[0] = value
    save_model(tmp_path / "model", artifact)
    with pytest.raises(ModelError, match="NaN or infinite"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("temperature", [1e300, 1e-300])
def test_temperatures_that_say_nothing_are_refused(tmp_path, temperature):
    artifact = replace(any_graph_artifact(), temperatures={"link": temperature})
    save_model(tmp_path / "model", artifact)
    with pytest.raises(ModelError, match="expected temperatures"):
        load_model(tmp_path / "model")
