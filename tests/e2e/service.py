"""A dispatcher, workers and a gateway as processes, for the tests of TensorFlow's data service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.e2e.deliveries import Slot
from tests.harness.waiting import TIMEOUT_SECONDS

SCRIPT = Path(__file__).with_name("tensorflow_trainer.py")

SEED = 17

ALL = 1 << 40
"""Batches: as many as there are."""

TRANSFORMS = """
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [32, 32]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
"""

KEYED = "def keyed(sample, key):\n    return {**sample, 'key': key}\n"


def photos_text(photos: Any, batch: str = "{size: 16, remainder: pad}") -> str:
    """The definition of one pipeline, `photos`."""
    return f"""
pipelines:
  photos:
    source: {{images: {photos.folder}, labels: {photos.folder}/labels.csv}}{TRANSFORMS}
    batch: {batch}
"""


def numbers_text(folder: Path, samples: int, batch: int) -> str:
    """The entry of a pipeline, `numbers`, whose sample i is i and has its key as a field."""
    np.savez(folder / "numbers.npz", number=np.arange(samples))
    (folder / "numbers_map.py").write_text(KEYED)
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
    """Started as one would by hand. Ports are taken by the first start and kept by later ones."""

    command_line: Any
    folder: Path
    text: str
    processes: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    def start(self, workers: int) -> Cluster:
        """Workers and gateway start side by side: the gateway waits for a first worker."""
        self.dispatch()
        for number in range(workers):
            self._begin_worker(number)
        self._begin_server()
        for name in [*self.processes]:
            self._await(name)
        return self

    def dispatch(self) -> None:
        journal = str(self.folder / "journal")
        self._begin("dispatcher", "dispatcher", "--work-dir", journal)
        self._await("dispatcher")

    def work(self, number: int) -> None:
        self._begin_worker(number)
        self._await(f"worker {number}")

    def kill(self, name: str) -> None:
        """As `kill -9`; returns when the process has ended."""
        self.processes[name].kill()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()

    @property
    def target(self) -> str:
        return self.addresses["server"]

    def trainer(self, go: Path, pipeline: str, target: str | None = None, **options: Any) -> Any:
        """A TensorFlow trainer that takes as many batches as the file `go` allows."""
        words = ("python", str(SCRIPT), target or self.target, pipeline, str(go))
        return self.command_line.start(*words, json.dumps(options), cwd=self.folder)

    def _begin_worker(self, number: int) -> None:
        dispatcher = self.addresses["dispatcher"]
        self._begin(f"worker {number}", "worker", "--dispatcher", dispatcher)

    def _begin_server(self) -> None:
        (self.folder / "pipelines.yaml").write_text(self.text)
        engine = ("--engine", "tf-data-service", "--dispatcher", self.addresses["dispatcher"])
        self._begin("server", "serve", "pipelines.yaml", *engine)

    def _begin(self, name: str, *words: str) -> None:
        """By name, so that one that is started again listens where it did before."""
        listen = self.addresses.get(name, "127.0.0.1:0")
        self.processes[name] = self.command_line.start(
            *words, "--listen", listen, "--http", "off", cwd=self.folder
        )

    def _await(self, name: str) -> None:
        self.addresses[name] = self.processes[name].address


def until(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Waits for the condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def allow(go: Path, batches: int) -> None:
    """Lets the trainers of `go` take so many batches in all, each of them."""
    go.write_text(str(batches))


def took(trainer: Any, batches: int) -> None:
    """Waits until a trainer has taken so many batches."""

    def enough() -> bool:
        return len(trainer.stdout.splitlines()) >= batches

    until(lambda: enough() or trainer.ended, f"a trainer takes fewer than {batches} batches")
    assert enough(), trainer.stdout + trainer.stderr


def batches_of(trainer: Any) -> list[list[Slot]]:
    """What a trainer of the script got, once it has ended."""
    assert trainer.wait() == 0, trainer.stderr
    lines = [json.loads(line) for line in trainer.stdout.splitlines()]
    assert lines, trainer.stderr
    assert lines.pop() == {"end": True}, trainer.stdout
    return [[tuple(slot) for slot in line["slots"]] for line in lines]


def last_of(script: Any) -> dict[str, Any]:
    """The last line that a script printed, once it has ended."""
    assert script.wait() == 0, script.stderr
    found: dict[str, Any] = json.loads(script.stdout.splitlines()[-1])
    return found


def slots_of(batch: Any) -> list[Slot]:
    """The slots of a batch of `numbers` that are not empty, with their keys."""
    assert batch["number"][batch.mask].tolist() == batch.sample_ids[batch.mask].tolist()
    pairs = zip(batch.sample_ids[batch.mask], batch["key"][batch.mask], strict=True)
    return [(int(sample), *map(int, key)) for sample, key in pairs]


def kept(batches: Iterable[Iterable[int]]) -> list[int]:
    """The sample ids of batches, without empty slots."""
    return [sample for batch in batches for sample in batch if sample >= 0]
