"""The recorded run: two servers, a trainer that reads from both, and a SIGKILL."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools.recording.panes import Line, Pane

from infeed_tools.demo import shapes

DEFINITION = """\
pipelines:
  train:
    source: {images: train, labels: folders}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_crop: {field: image, size: [48, 48]}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 50}
"""


@dataclass(frozen=True)
class Recording:
    """Lines of each terminal, with times of the monotonic clock."""

    trainer: list[Line]
    servers: list[list[Line]]
    shell: list[Line]


def record(images: int, epochs: int, kill_at: int) -> Recording:
    """Trains, and kills one of two servers once the trainer has printed the step `kill_at`.

    Raises `RuntimeError` if the trainer fails or counts a lost or repeated sample.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        for _ in shapes.write_images(folder / "train", images, seed=17):
            pass
        (folder / "pipelines.yaml").write_text(DEFINITION)
        shutil.copy(Path(__file__).with_name("train.py"), folder)
        serve = "infeed serve pipelines.yaml --listen 127.0.0.1:0 --http off --quiet"
        servers = [stack.enter_context(Pane(serve, folder)) for _ in range(2)]
        addresses = [server.wait_for(r"^serving on (\S+)")[1] for server in servers]
        command = f"python train.py {','.join(addresses)} {epochs}"
        trainer = stack.enter_context(Pane(command, folder))
        trainer.wait_for(rf"^step +{kill_at}\b")
        shell = stack.enter_context(Pane(f"kill -9 {servers[0].child}", folder))
        servers[0].wait_for("Killed")
        if trainer.wait() != 0:
            raise RuntimeError("\n".join(line.text for line in trainer.lines))
        shell.wait()
        lines = [list(server.lines) for server in servers]
    return Recording(list(trainer.lines), lines, list(shell.lines))
