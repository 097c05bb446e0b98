"""Sharing models, with a hub that is a folder."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import pytest
from support.places import MODELS

from pathe.core.errors import ModelError, PatheError
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


def test_without_the_package_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PatheError, match=r"pip install 'pathe\[hub\]'"):
        pull_model("me/umls")


def test_the_real_package_has_what_is_called():
    hub = pytest.importorskip("huggingface_hub")
    import inspect

    assert {"private", "exist_ok"} <= inspect.signature(hub.HfApi.create_repo).parameters.keys()
    wanted = {"repo_id", "folder_path", "allow_patterns", "commit_message"}
    assert wanted <= inspect.signature(hub.HfApi.upload_folder).parameters.keys()
    assert "revision" in inspect.signature(hub.hf_hub_download).parameters
    assert hub.constants.ENDPOINT.startswith("https://")
