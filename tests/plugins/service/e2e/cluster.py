"""A tf.data service cluster and its trainers as processes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Slot = tuple[int, ...]
"""A sample's id and its key, which differs in every epoch; in a job of one epoch, the id alone."""

SCRIPT = Path(__file__).with_name("tensorflow_trainer.py")

SEED = 17

ALL = 1 << 40
"""More batches than any dataset here has."""

MAP_FUNCTION = "def keyed(sample, key):\n    return {**sample, 'key': key}\n"


def numbers_text(folder: Path, samples: int, batch: int) -> str:
    """Returns the entry of the pipeline `numbers`: sample i is i, with its key as a field."""
    np.savez(folder / "numbers.npz", number=np.arange(samples))
    (folder / "numbers_map.py").write_text(MAP_FUNCTION)
    return f"""
  numbers:
    source: {{arrays: {folder}/numbers.npz}}
    shuffle: {{seed: {SEED}}}
    transforms:
      - map: numbers_map:keyed
    batch: {{size: {batch}, remainder: pad}}
"""


@dataclass
class Cluster:
    """Dispatcher, workers and a gateway, which restart on their ports."""

    command_line: Any
    folder: Path
    text: str
    processes: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    def start(self, workers: int) -> Cluster:
        """Starts all; workers and the gateway start in parallel."""
        self.start_dispatcher()
        for number in range(workers):
            self._spawn_worker(number)
        self._spawn_server()
        for name in [*self.processes]:
            self._save_address(name)
        return self

    def start_dispatcher(self) -> None:
        """Starts the dispatcher; returns when it serves."""
        journal = str(self.folder / "journal")
        self._spawn("dispatcher", "dispatcher", "--work-dir", journal)
        self._save_address("dispatcher")

    def start_worker(self, number: int) -> None:
        """Starts a worker; returns when it serves."""
        self._spawn_worker(number)
        self._save_address(f"worker {number}")

    def kill(self, name: str) -> None:
        """Sends SIGKILL, and waits for the end."""
        self.processes[name].kill()

    def stop(self) -> None:
        """Kills all processes."""
        for process in self.processes.values():
            process.kill()

    @property
    def target(self) -> str:
        """The gateway's address."""
        return self.addresses["server"]

    def trainer(self, go: Path, pipeline: str, target: str | None = None, **options: Any) -> Any:
        """Starts a TensorFlow trainer that takes as many batches as the file `go` allows."""
        arguments = ("python", str(SCRIPT), target or self.target, pipeline, str(go))
        return self.command_line.start(*arguments, json.dumps(options), cwd=self.folder)

    def _spawn_worker(self, number: int) -> None:
        dispatcher = self.addresses["dispatcher"]
        self._spawn(f"worker {number}", "worker", "--dispatcher", dispatcher)

    def _spawn_server(self) -> None:
        (self.folder / "pipelines.yaml").write_text(self.text)
        engine = ("--engine", "tf-data-service", "--dispatcher", self.addresses["dispatcher"])
        self._spawn("server", "serve", "pipelines.yaml", *engine)

    def _spawn(self, name: str, *arguments: str) -> None:
        """Starts the process `name`, on its previous address if it has one."""
        listen = self.addresses.get(name) or self.command_line.new_address()
        self.processes[name] = self.command_line.start(
            *arguments, "--listen", listen, "--http", "off", cwd=self.folder
        )

    def _save_address(self, name: str) -> None:
        """Waits until the process serves, and keeps its address."""
        self.addresses[name] = self.processes[name].address


def allow_batches(go: Path, batches: int) -> None:
    """Allows each trainer of `go` to take `batches` batches in total."""
    go.write_text(str(batches))


def wait_for_batches(trainer: Any, batches: int) -> None:
    """Waits until a trainer has taken `batches` batches."""
    trainer.wait_until(
        lambda: len(trainer.stdout.splitlines()) >= batches, f"the trainer takes {batches} batches"
    )


def batches_of(trainer: Any) -> list[list[Slot]]:
    """Waits for a trainer's end; returns the slots of its batches."""
    assert trainer.wait() == 0, trainer.stderr
    lines = [json.loads(line) for line in trainer.stdout.splitlines()]
    assert lines, trainer.stderr
    assert lines.pop() == {"end": True}, trainer.stdout
    return [[tuple(slot) for slot in line["slots"]] for line in lines]


def slots_of(batch: Any) -> list[Slot]:
    """Returns the non-empty slots of a batch of `numbers`, with their keys."""
    assert batch["number"][batch.mask].tolist() == batch.sample_ids[batch.mask].tolist()
    pairs = zip(batch.sample_ids[batch.mask], batch["key"][batch.mask], strict=True)
    return [(int(sample), *map(int, key)) for sample, key in pairs]


def count(delivered: Iterable[Slot], samples: int, epochs: int) -> dict[str, int]:
    """Counts a job's slots, one for each sample of each epoch: the lost ones, deliveries beyond the
    first, and unknown ids or surplus epochs.

    It counts slots, not samples: else a repeat would cancel a loss of the same sample.
    """
    times = Counter(delivered)
    epochs_of = Counter(sample for sample, *_ in times)
    known = sum(min(epochs_of[sample], epochs) for sample in range(samples))
    lost, repeated = samples * epochs - known, times.total() - len(times)
    return {"lost": lost, "repeated": repeated, "unknown": len(times) - known}


def valid_ids(batches: Iterable[Iterable[int]]) -> list[int]:
    """Returns the sample ids of batches, without empty slots."""
    return [sample for batch in batches for sample in batch if sample >= 0]
