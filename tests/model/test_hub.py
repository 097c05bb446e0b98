"""Sharing models, with a hub that is a folder."""

from __future__ import annotations

import json
import os
import shutil
import sys
import types
from pathlib import Path

import pytest
from support.places import MODELS

from pathe.core.errors import ModelError, PatheError
from pathe.model import artifact
from pathe.model.artifact import load_model
from pathe.model.hub import pull_model, push_model

MODEL = MODELS / "umls"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in for huggingface_hub that keeps repositories as folders."""
    shelf = tmp_path / "hub"

    class HfApi:
        def create_repo(self, repository, *, private, exist_ok):
            if repository.startswith("locked/"):
                raise OSError("403 Forbidden: no write access\nmore lines")
            (shelf / repository).mkdir(parents=True, exist_ok=exist_ok)

        def upload_folder(self, *, repo_id, folder_path, allow_patterns, commit_message):
            for name in allow_patterns:
                shutil.copy(Path(folder_path) / name, shelf / repo_id / name)

    def hf_hub_download(repository, name, *, revision=None):
        path = shelf / repository / name
        if not path.exists():
            raise OSError(f"404: {name} not found")
        return str(path)

    fake = types.SimpleNamespace(
        HfApi=HfApi,
        hf_hub_download=hf_hub_download,
        constants=types.SimpleNamespace(ENDPOINT="https://hub.example"),
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    monkeypatch.chdir(tmp_path)
    return shelf


def test_a_model_goes_to_the_hub_and_comes_back(hub, tmp_path):
    assert push_model(MODEL, "me/umls") == "https://hub.example/me/umls"
    assert sorted(p.name for p in (hub / "me/umls").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "relations.json"]  # fmt: skip
    folder = pull_model("me/umls")
    assert folder == Path("umls")
    assert load_model(folder).relations == load_model(MODEL).relations
    assert pull_model("me/umls", tmp_path / "a" / "b") == tmp_path / "a" / "b"
    with pytest.raises(PatheError, match="new or empty folder"):
        pull_model("me/umls")


def test_what_goes_wrong_is_said_in_a_line(hub, tmp_path):
    with pytest.raises(ModelError, match=r"locked/x: can't be pushed to: 403 Forbidden.*access$"):
        push_model(MODEL, "locked/x")
    with pytest.raises(ModelError, match=r"none/there: can't be pulled: .*404"):
        pull_model("none/there")
    push_model(MODEL, "me/umls")
    weights = hub / "me/umls" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ModelError, match="truncated or modified"):
        pull_model("me/umls", "spoilt")
    assert not Path("spoilt").exists()
    with pytest.raises(ModelError, match="not a model folder"):
        push_model(tmp_path, "me/umls")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "../models", "me/..", "me/../umls", "me/.", "", "me/umls/more", "me//umls",
        "https://hub.example/me/umls", "me\\umls", "me/um ls", "me/umls\n", ".ssh/id", "~/models",
    ],
)  # fmt: skip
def test_paths_and_addresses_are_no_names_of_repositories(hub, name):
    with pytest.raises(ModelError, match="Expected OWNER/NAME"):
        pull_model(name, "pulled")
    with pytest.raises(ModelError, match="Expected OWNER/NAME"):
        push_model(MODEL, name)
    assert not Path("pulled").exists()


def test_only_the_files_of_a_model_are_pulled_and_none_of_them_is_a_link(hub, tmp_path):
    push_model(MODEL, "me/umls")
    shelf = hub / "me/umls"
    for name in ("setup.py", "model.pkl", "pytorch_model.bin", "../outside.txt", ".bashrc"):
        (shelf / name).write_text("print('mine')")
    for name in ("config.json", "model.safetensors"):  # as the cache of the real hub has them
        (shelf / name).rename(tmp_path / name)
        (shelf / name).symlink_to(tmp_path / name)
    folder = pull_model("me/umls")
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md", "config.json", "model.safetensors", "relations.json"]  # fmt: skip
    assert not any(p.is_symlink() for p in folder.iterdir())


def oversized(raw: bytes) -> dict[str, bytes]:
    """Weights with lengths of the header, or offsets in it, that aren't true."""
    size = int.from_bytes(raw[:8], "little")
    header, rest = raw[8 : 8 + size], raw[8 + size :]
    far = header.replace(b'"data_offsets":[0,', b'"data_offsets":[0,9', 1)
    return {
        "a header of 2^63 bytes": (1 << 63).to_bytes(8, "little") + raw[8:],
        "a header longer than the file": (len(raw) + 1).to_bytes(8, "little") + raw[8:],
        "a header of 200 MB": (200 << 20).to_bytes(8, "little") + b" " * (200 << 20) + rest,
        "offsets beyond the file": len(far).to_bytes(8, "little") + far + rest,
        "no header": b"",
        "nested JSON": (1 << 16).to_bytes(8, "little") + b"[" * (1 << 16) + rest,
    }


@pytest.mark.parametrize("what", oversized(b"\0" * 8))
def test_weights_with_false_lengths_are_refused(hub, what):
    push_model(MODEL, "me/umls")
    shelf = hub / "me/umls"
    raw = oversized((shelf / "model.safetensors").read_bytes())[what]
    (shelf / "model.safetensors").write_bytes(raw)
    about = json.loads((shelf / "config.json").read_text())
    about["sha256"]["model.safetensors"] = artifact._digest(raw)
    about["sha256"]["config.json"] = artifact._digest_settings(about)
    (shelf / "config.json").write_text(json.dumps(about))
    with pytest.raises(
        ModelError, match=r"model\.safetensors: (the weights can.t be read|expected at most)"
    ):
        pull_model("me/umls")
    assert not Path("umls").exists()
    assert [p.name for p in Path.cwd().iterdir() if p.name != "hub"] == []


@pytest.mark.parametrize("kind", ["fifo", "folder", "/dev/zero"])
def test_only_regular_files_are_pulled(hub, kind):
    push_model(MODEL, "me/umls")
    path = hub / "me/umls" / "model.safetensors"
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(kind)
    with pytest.raises(ModelError, match=r"model\.safetensors: expected a file"):
        pull_model("me/umls")
    assert not Path("umls").exists()


def test_without_the_package_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PatheError, match=r"pip install 'pathe\[hub\]'"):
        pull_model("me/umls")


def test_huggingface_hub_has_the_functions_that_are_used():
    hub = pytest.importorskip("huggingface_hub")
    import inspect

    assert {"private", "exist_ok"} <= inspect.signature(hub.HfApi.create_repo).parameters.keys()
    wanted = {"repo_id", "folder_path", "allow_patterns", "commit_message"}
    assert wanted <= inspect.signature(hub.HfApi.upload_folder).parameters.keys()
    assert "revision" in inspect.signature(hub.hf_hub_download).parameters
    assert hub.constants.ENDPOINT.startswith("https://")
