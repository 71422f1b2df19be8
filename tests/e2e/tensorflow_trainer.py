"""A TensorFlow trainer that reads from the workers, as a process.

    python tensorflow_trainer.py TARGET PIPELINE GO [OPTIONS]

OPTIONS is JSON: what `distribute` takes, and `steps` where the data has no end. The file GO holds
how many batches may be taken; the trainer waits for it before each. It prints a line of JSON for
each batch, its slots as [id, *key], and at the end {"end": true} or the error.
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
    chosen = json.loads(options)
    steps = chosen.pop("steps", -1)
    dataset = infeed.tensorflow.distribute(
        target, pipeline, label=None, sample_ids=True, mask=False, **chosen
    )
    taken = 0
    batches = iter(dataset.take(steps))
    while True:
        while taken >= allowed(Path(go)):
            time.sleep(0.005)
        batch = next(batches, None)
        if batch is None:
            break
        taken += 1
        say(slots=slots(batch))
    say(end=True)


def allowed(go: Path) -> int:
    """How many batches may be taken; a file that is being written may be empty."""
    return int(go.read_text() or 0) if go.exists() else 0


def slots(batch: dict[str, Any]) -> list[list[int]]:
    ids = batch["sample_ids"].numpy().tolist()
    keys = batch["key"].numpy().tolist() if "key" in batch else [[]] * len(ids)
    return [[number, *key] for number, key in zip(ids, keys, strict=True) if number >= 0]


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InfeedError as error:
        say(error=type(error).__name__, message=str(error))
