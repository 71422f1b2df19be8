"""A dispatcher, workers and a gateway as processes, for the tests of TensorFlow's data service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("tensorflow_trainer.py")

TRANSFORMS = """
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_resized_crop: {field: image, size: [32, 32]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
"""


def photos_text(photos: Any, batch: str = "{size: 16, remainder: pad}") -> str:
    """The definition of one pipeline, `photos`."""
    return f"""
pipelines:
  photos:
    source: {{images: {photos.folder}, labels: {photos.folder}/labels.csv}}{TRANSFORMS}
    batch: {batch}
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
        self.dispatch()
        for number in range(workers):
            self.work(number)
        self.serve()
        return self

    def dispatch(self) -> None:
        journal = str(self.folder / "journal")
        self._start("dispatcher", "dispatcher", "--work-dir", journal)

    def work(self, number: int) -> None:
        dispatcher = self.addresses["dispatcher"]
        self._start(f"worker {number}", "worker", "--dispatcher", dispatcher)

    def serve(self, *options: str) -> None:
        (self.folder / "pipelines.yaml").write_text(self.text)
        engine = ("--engine", "tf-data-service", "--dispatcher", self.addresses["dispatcher"])
        self._start("server", "serve", "pipelines.yaml", *engine, *options)

    @property
    def target(self) -> str:
        return self.addresses["server"]

    def trainer(self, go: Path, target: str | None = None, **options: Any) -> Any:
        """A TensorFlow trainer that waits for the file `go`."""
        words = ("python", str(SCRIPT), target or self.target, "photos", str(go))
        return self.command_line.start(*words, json.dumps(options), cwd=self.folder)

    def _start(self, name: str, *words: str) -> None:
        """By name, so that one that is started again listens where it did before."""
        listen = self.addresses.get(name, "127.0.0.1:0")
        started = self.command_line.start(
            *words, "--listen", listen, "--http", "off", cwd=self.folder
        )
        self.processes[name] = started
        self.addresses[name] = started.address


def told(trainer: Any) -> dict[str, Any]:
    """What a trainer of the script printed at its end."""
    assert trainer.wait(300) == 0, trainer.stderr
    last: dict[str, Any] = json.loads(trainer.stdout.strip().splitlines()[-1])
    return last


def kept(batches: Iterable[Iterable[int]]) -> list[int]:
    """The sample ids of batches, without empty slots."""
    return [sample for batch in batches for sample in batch if sample >= 0]
