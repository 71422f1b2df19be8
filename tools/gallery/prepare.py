"""The files and objects that a pipeline of the gallery needs."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from tests.harness.object_server import ObjectServer
from tools.gallery.entries import Entry

EXAMPLES = Path(__file__).parents[2] / "examples"


def prepare(entry: Entry, folder: Path, store: ObjectServer) -> str:
    """Writes the definition of a pipeline and its data into a folder, and objects into a store.
    Returns the pipeline's name."""
    for name in ("functions.py", f"{entry.file}.yaml"):
        shutil.copy(EXAMPLES / name, folder)
    data = folder / "data"
    data.mkdir()
    entry.write(data)
    if entry.bucket:
        store.put_folder(data / "pictures", f"{entry.bucket}/train")
    (name,) = yaml.safe_load((folder / f"{entry.file}.yaml").read_text())["pipelines"]
    return str(name)


def store_environment(url: str) -> dict[str, str]:
    """Returns the variables for an object store without credentials."""
    return {"AWS_ENDPOINT_URL": url, "AWS_SKIP_SIGNATURE": "true", "AWS_REGION": "us-east-1"}
