"""A TensorFlow trainer that reads from the workers, as a process.

    python tensorflow_trainer.py TARGET PIPELINE GO [OPTIONS]

OPTIONS is JSON: what `distribute` takes, and `steps` where the data has no end. When the file GO
is there, it reads, and prints a line of JSON: the sample ids of each batch, or the error.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import infeed.tensorflow
from infeed import InfeedError


def main(target: str, pipeline: str, go: str, options: str = "{}") -> None:
    chosen = json.loads(options)
    steps = chosen.pop("steps", -1)
    dataset = infeed.tensorflow.distribute(
        target, pipeline, label=None, sample_ids=True, mask=False, **chosen
    )
    print("ready", flush=True)
    while not Path(go).exists():
        time.sleep(0.005)
    batches, sums = [], []
    # Written as it comes: whoever kills this process wants to know what it had.
    with Path(go + f".{chosen.get('job_name', '')}.ids").open("a", buffering=1) as out:
        for batch in dataset.take(steps):
            ids = batch["sample_ids"].numpy().tolist()
            batches.append(ids)
            out.write(json.dumps(ids) + "\n")
            sums.append(float(batch["image"].numpy().sum(dtype="float64")))
    print(json.dumps({"batches": batches, "sums": sums}), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InfeedError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
