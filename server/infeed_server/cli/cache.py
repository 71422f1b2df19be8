"""The command `infeed cache`."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from infeed_server.cli.console import console
from infeed_server.cli.logs import set_up_logging


class Action(str, Enum):
    """What `infeed cache` does."""

    LIST = "list"
    CLEAR = "clear"
    VERIFY = "verify"


def cache(
    action: Annotated[
        Action,
        typer.Argument(
            help="list: show the caches. clear: delete those that no server uses. verify: read "
            "every sample and compare its hash."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="Pipeline, or the beginning of a folder's name. Default: all."),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Folder of the caches. Default: where `- cache: disk` puts them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Lists, deletes or verifies what `- cache: disk` has kept.

    Exits with status 1 if a cache that is in use was to be deleted, or a sample is damaged. A
    server makes damaged samples again.

    \b
    Examples:
      infeed cache list
      infeed cache verify photos
      infeed cache clear --path /mnt/nvme/infeed
    """
    set_up_logging()
    from infeed_server.cache.directory import default_root, delete, list_directories, verify

    root, failed, rows = path or default_root(), False, []
    for one in list_directories(root):
        if name is not None and name != one.pipeline and not one.path.name.startswith(name):
            continue
        row = {**asdict(one), "path": str(one.path)}
        if action is Action.VERIFY:
            row["kept"], row["damaged"] = verify(one)
            failed = failed or bool(row["damaged"])
        if action is Action.CLEAR:
            row["is_deleted"] = delete(one)
            failed = failed or not row["is_deleted"]
        rows.append(row)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        console.print(f"no cache{f' of {name}' if name else ''} in {root}")
    for row in () if as_json else rows:
        notes = ["in use"] * bool(row["is_in_use"])
        if "kept" in row:
            notes.append(f"{row['kept']} of {row['samples']} samples, {row['damaged']} damaged")
        if "is_deleted" in row:
            notes.append("deleted" if row["is_deleted"] else "not deleted")
        print(f"{row['path']}: {row['pipeline']}, {decimal(int(row['bytes']))}", *notes, sep=", ")
    raise typer.Exit(failed)
