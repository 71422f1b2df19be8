"""TensorFlow trainer that reads from the workers of a data service.

    python tensorflow_trainer.py TARGET PIPELINE GO [OPTIONS]

OPTIONS is JSON: the arguments of `distribute`, and `steps` for infinite data. The file GO holds the
number of batches that the trainer may take; it waits when it has taken them. It prints a line of
JSON for each batch, with its slots as [id, *key], and finally {"end": true} or the error.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import infeed.tensorflow
from infeed import InfeedError


def main(target: str, pipeline: str, go: str, options: str = "{}") -> None:
    arguments = json.loads(options)
    steps = arguments.pop("steps", -1)
    dataset = infeed.tensorflow.distribute(
        target, pipeline, label=None, sample_ids=True, mask=False, **arguments
    )
    taken = 0
    batches = iter(dataset.take(steps))
    while True:
        while taken >= read_limit(Path(go)):
            time.sleep(0.005)
        batch = next(batches, None)
        if batch is None:
            break
        taken += 1
        write_line(slots=slots_of(batch))
    write_line(end=True)


def read_limit(go: Path) -> int:
    """Returns the number of batches that may be taken; a file being written may be empty."""
    return int(go.read_text() or 0) if go.exists() else 0


def slots_of(batch: dict[str, Any]) -> list[list[int]]:
    ids = batch["sample_ids"].numpy().tolist()
    keys = batch["key"].numpy().tolist() if "key" in batch else [[]] * len(ids)
    return [[number, *key] for number, key in zip(ids, keys, strict=True) if number >= 0]


def write_line(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InfeedError as error:
        write_line(error=type(error).__name__, message=str(error))
