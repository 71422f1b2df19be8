"""Descriptions in folders written by Hugging Face's `save_to_disk`, read without `datasets`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infeed.shared.errors import SourceError
from infeed_formats.arrow.fields import decoding
from infeed_server.storage.files import (
    describe_nearest_folder,
    has_match,
    is_file,
    is_folder,
    read_bytes,
)

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"

_FILES = ("Image", "Audio", "Video")
"""Features stored as a struct of a file's bytes and path."""


_WHAT = "the JSON of save_to_disk"


class SavedDataset(NamedTuple):
    """A saved data set: its files, its identity, and its features by name."""

    files: Sequence[str]
    fingerprint: str
    features: dict[str, Any]

    @property
    def encoded(self) -> list[str]:
        """The features whose values are the bytes of files, such as images."""
        return [name for name in self.features if self._kind(name) in _FILES]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The names of the classes of each label."""
        return class_labels(self.features)

    @property
    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shapes of features that have one, Array2D to Array5D."""
        return {
            name: tuple(feature["shape"])
            for name, feature in self.features.items()
            if (self._kind(name) or "").startswith("Array")
        }

    def _kind(self, name: str) -> str | None:
        return _kind(self.features[name])


def _kind(feature: Any) -> str | None:
    return feature.get("_type") if isinstance(feature, dict) else None


def stored_classes(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Returns the result of `class_labels` for schema metadata written by `datasets`; nothing for
    other metadata, as rows can be read without it."""
    try:
        described = json.loads((metadata or {}).get(b"huggingface", b"{}"))
        return class_labels(described["info"]["features"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def class_labels(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Returns the class names of each label among a data set's features."""
    return {
        name: tuple(map(str, feature["names"]))
        for name, feature in features.items()
        if _kind(feature) == "ClassLabel"
    }


def read_splits(folder: str) -> list[str]:
    """Returns the splits of a saved DatasetDict; none for other folders. Raises `SourceError`."""
    file = f"{folder}/{SPLITS}"
    if not is_file(file):
        return []
    with decoding(file, _WHAT):
        return [f"{folder}/{name}" for name in json.loads(read_bytes(file))["splits"]]


def require_saved(folder: str) -> None:
    """Raises `SourceError` for a folder that is not a saved data set."""
    if is_file(f"{folder}/{STATE}"):
        return
    if splits := read_splits(folder):
        problem = f"{folder!r} is a DatasetDict; name one of its splits: {', '.join(splits)}"
    elif not is_folder(folder):
        problem = f"no folder {folder!r}; {describe_nearest_folder(folder)}"
    elif has_match(f"{folder}/**/*.parquet"):
        problem = f"{folder!r} holds Parquet files; name them: parquet: '{folder}/**/*.parquet'"
    else:
        problem = (
            f"{folder!r} is not a saved data set: it has no {STATE}; "
            f"{describe_nearest_folder(f'{folder}/{STATE}')}; write one: ds.save_to_disk(FOLDER)"
        )
    raise SourceError(problem, file=folder)


def read_saved(folder: str) -> SavedDataset:
    """Reads the descriptions of a saved data set. Raises `SourceError`."""
    require_saved(folder)
    file = f"{folder}/{STATE}"
    with decoding(file, _WHAT):
        state = json.loads(read_bytes(file))
        if state.get("_indices_data_files"):
            raise SourceError(
                f"{folder}: indices.arrow chooses its rows, which is not supported; write the "
                "rows themselves: ds.flatten_indices().save_to_disk(FOLDER)",
                file=folder,
            )
        files = [f"{folder}/{item['filename']}" for item in state["_data_files"]]
        fingerprint = state["_fingerprint"]
        if not isinstance(fingerprint, str):
            raise ValueError("its fingerprint is not text")
    if not files:
        raise SourceError(f"{folder} has no rows; leave it out", file=folder)
    file = f"{folder}/{INFO}"
    with decoding(file, _WHAT):
        saved = SavedDataset(files, fingerprint, dict(json.loads(read_bytes(file))["features"]))
        _ = saved.encoded, saved.classes, saved.shapes  # each raises for a wrong description
    return saved
