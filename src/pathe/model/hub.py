"""Uploads model folders to a hub and downloads them; needs the extra `hub` (huggingface_hub)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from pathe.core.errors import ModelError
from pathe.core.extras import require
from pathe.core.files import check_new_folder, replacing
from pathe.model.artifact import FILES, load_model, model_folder

NAME = re.compile(r"(?!\.)[\w.-]+(/(?!\.)[\w.-]+)?")  # of a repository: no path, no URL


def push_model(folder: Path | str, repository: str, *, private: bool = False) -> str:
    """Uploads a model folder (or a run's) to OWNER/NAME, created if needed; returns its URL."""
    hub = _hub()
    _check_name(repository)
    folder = model_folder(folder)
    load_model(folder)  # raises an error before a broken model is uploaded
    try:
        api = hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=str(folder),
            allow_patterns=list(FILES),
            commit_message="A PathE model",
        )
    except Exception as error:  # its error classes differ between releases
        raise ModelError(f"{repository}: can't be pushed to: {_first_line(error)}") from None
    return f"{hub.constants.ENDPOINT}/{repository}"


def pull_model(
    repository: str, folder: Path | str | None = None, *, revision: str | None = None
) -> Path:
    """Downloads and checks OWNER/NAME; returns its folder, by default ./NAME."""
    hub = _hub()
    _check_name(repository)
    folder = Path(repository.rpartition("/")[2] if folder is None else folder)
    check_new_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as aside:
        aside.mkdir()
        for name in FILES:  # and no others, whatever the repository has
            try:
                found = Path(hub.hf_hub_download(repository, name, revision=revision))
            except Exception as error:
                raise ModelError(
                    f"{repository}: can't be pulled: {name}: {_first_line(error)}"
                ) from None
            if not found.is_file():  # a link to one is: caches have those
                raise ModelError(f"{repository}: can't be pulled: {name}: expected a file.")
            shutil.copyfile(found, aside / name)
        load_model(aside)  # raises an error unless it is a whole model
        if folder.exists():
            folder.rmdir()  # it is empty
    return folder


def _check_name(repository: str) -> None:
    if not NAME.fullmatch(repository):
        raise ModelError(f"Expected OWNER/NAME, as the hub has it; got {repository[:100]!r}.")


def _hub() -> Any:
    return require("huggingface_hub", "hub", "Sharing models")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
