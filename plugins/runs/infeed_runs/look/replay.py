"""The command `infeed replay`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import typer
import xxhash
from rich.console import Console

from infeed.batch import Batch
from infeed.cli import RUNS
from infeed.cli.connection import Connection, Target
from infeed.cli.model_options import option, with_models
from infeed.cli.output import print_json, print_line, problem_of
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array
from infeed_runs.look.batches import read_steps
from infeed_runs.look.run_options import RunName, RunOptions


@dataclass(frozen=True)
class ReplayOptions:
    """The options as given."""

    steps: str = option(..., "The first step and the end, which is excluded.", metavar="A:B")
    rank: int = option(0, "The rank whose batches are read.", min=0)
    epochs: int | None = option(
        None, "Epochs of the run; needed for its last step, which can have empty slots.", min=1
    )
    out: Path | None = option(
        None, "Also write each batch into this folder, as .npz.", metavar="FOLDER"
    )


app = typer.Typer()


@app.command(rich_help_panel=RUNS)
@with_models
def replay(
    target: Target,
    run: RunName,
    options: ReplayOptions,
    run_options: RunOptions,
    connection: Connection,
) -> None:
    """Reads steps of a run again, bit-identical, and prints a checksum of each batch.

    \b
    Examples:
      infeed replay 127.0.0.1:7470 run.json --steps 48100:48130
      infeed replay 127.0.0.1:7470 photos@17 --steps 0:10 --rank 3 --world-size 8 --json
      infeed replay 127.0.0.1:7470 run.json --steps 48123:48124 --out batches
    """
    if (found := re.fullmatch(r"(\d{1,19}):(\d{1,19})", options.steps)) is None:
        raise InvalidRequestError(
            f"--steps must be A:B, the first step and the excluded end, such as 100:200, not "
            f"{options.steps!r}"
        )
    steps, rank = (int(found[1]), int(found[2])), options.rank
    console, documents, loaded = Console(), [], run_options.load(run)
    for step, batch, _ in read_steps(
        target, loaded, steps, rank, run_options, connection, options.epochs
    ):
        document = _to_json(step, rank, batch)
        if options.out is not None:
            document["file"] = str(_write(options.out, document, batch))
        if run_options.as_json:
            documents.append(document)
        else:
            print_line(console, _line(document))
    if run_options.as_json:
        print_json(documents)


def checksum(batch: Batch) -> str:
    """Returns a batch's 64-bit XXH3 hash as 16 hexadecimal digits. It covers the bytes of each
    field in order, then the sample ids and the mask; the length of a byte string, in eight bytes,
    precedes its bytes."""
    digest = xxhash.xxh3_64()
    for array in (*batch.values(), batch.sample_ids, batch.mask):
        if array.dtype == object:
            for value in array.reshape(-1):
                digest.update(len(value).to_bytes(8, "little") + value)
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _to_json(step: int, rank: int, batch: Batch) -> dict[str, Any]:
    return {
        "step": step,
        "rank": rank,
        "start": batch.start,
        "slots": batch.slots,
        "samples": int(batch.mask.sum()),
        "epoch": batch.epoch,
        "checksum": checksum(batch),
    }


def _line(document: dict[str, Any]) -> str:
    start, slots = document["start"], document["slots"]
    words = [f"step {document['step']}: positions {start} to {start + slots - 1}"]
    words += [f"{document['samples']} samples"] * (document["samples"] < slots)
    words += [f"epoch {document['epoch']}", document["checksum"]]
    return ", ".join([*words, document["file"]] if "file" in document else words)


def _write(folder: Path, document: dict[str, Any], batch: Batch) -> Path:
    """Writes a batch. Byte strings are joined in one array, with their lengths in another."""
    arrays: dict[str, Array] = {
        "batch.start": np.array(batch.start),
        "batch.epoch": np.array(batch.epoch),
        "batch.sample_ids": batch.sample_ids,
        "batch.mask": batch.mask,
    }
    for name, array in batch.items():
        arrays[name] = array
        if array.dtype == object:
            values = array.reshape(-1)
            arrays[name] = np.frombuffer(b"".join(values), np.uint8)
            arrays[f"{name}.lengths"] = np.array([*map(len, values)]).reshape(array.shape)
    path = folder / f"step-{document['step']:09}-rank-{document['rank']:05}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # np.savez takes names as keywords, and a field can be named like one of its arguments.
        with ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except OSError as error:
        raise InvalidRequestError(f"--out {folder}: {problem_of(error)}", file=path) from None
    return path
