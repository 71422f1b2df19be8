"""Folders whose data files a JSON file describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from infeed.shared.errors import SourceError
from infeed_server.storage.files import (
    describe_nearest_folder,
    is_remote,
    read_bytes,
    read_stamp,
    reading,
)
from infeed_server.storage.stamp import FileStamp
from infeed_server.storage.stores import store_of

Message = TypeVar("Message", bound=BaseModel)


def read_description(path: str, model: type[Message], writer: str) -> Message:
    """Reads a JSON file in the form that `writer` writes. Raises `SourceError`."""
    try:
        return model.model_validate_json(read_bytes(path))
    except SourceError as error:
        problem = f"{error.message}; {describe_nearest_folder(path)}"
        raise SourceError(problem, file=path) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "JSON"
        problem = (
            f"is not what {writer} writes: {place}: {first['msg']}; choose the source that fits "
        )
        problem += "(infeed init has --source), or write it again"
        raise SourceError(f"{path} {problem}", file=path) from None


def check_names(path: str, names: Sequence[str]) -> None:
    """Raises `SourceError` if a name in the file `path` leaves its folder or repeats."""
    for name, count in Counter(names).items():
        if name.startswith("/") or ".." in name.split("/"):
            raise SourceError(f"{path}: {name!r} is outside the folder", file=path)
        if count > 1:
            raise SourceError(f"{path} lists the file {name!r} twice; write it again", file=path)


def stamps_below(folder: str) -> Callable[[str], FileStamp]:
    """Returns a function like `read_stamp` for files below a folder: it lists objects together
    instead of making a request for each."""
    listed: dict[str, FileStamp] = {}
    if is_remote(folder) and not folder.startswith("http"):  # a web server lists no files
        with reading(folder, "list"):
            listed.update(store_of(folder).list_files(folder))
    return lambda path: listed[path] if path in listed else read_stamp(path)
