"""Model folders to and from a hub repository; needs the optional package huggingface_hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pathe.artifact import FILES, load_model, model_folder
from pathe.errors import ModelError
from pathe.files import check_new_folder, replacing


def push_model(folder: Path | str, repository: str, *, private: bool = False) -> str:
    """Uploads a model folder (or a run's) to OWNER/NAME, which is made if need be; its address."""
    hub = _hub()
    folder = model_folder(folder)
    load_model(folder)  # what can't be loaded isn't shared
    try:
        api = hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=str(folder),
            allow_patterns=list(FILES),
            commit_message="A PathE model",
        )
    except Exception as error:  # its releases have error trees of their own
        raise ModelError(f"{repository}: can't be pushed to: {_first_line(error)}") from None
    return f"{hub.constants.ENDPOINT}/{repository}"


def pull_model(
    repository: str, folder: Path | str | None = None, *, revision: str | None = None
) -> Path:
    """Downloads OWNER/NAME, checks it and gives its folder; by default one named NAME here."""
    hub = _hub()
    folder = Path(repository.rpartition("/")[2] if folder is None else folder)
    check_new_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as aside:
        aside.mkdir()
        for name in FILES:
            try:
                found = hub.hf_hub_download(repository, name, revision=revision)
            except Exception as error:
                raise ModelError(
                    f"{repository}: can't be pulled: {name}: {_first_line(error)}"
                ) from None
            (aside / name).write_bytes(Path(found).read_bytes())
        load_model(aside)
        if folder.exists():
            folder.rmdir()  # it is empty
    return folder


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ModelError(
            "Sharing models needs the package huggingface_hub: pip install 'pathe[hub]'."
        ) from None
    return huggingface_hub


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
