"""Run of the demo: from files to a trained model, with a server in another process."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import track

from infeed.shared.errors import ConfigError, ServerUnavailableError
from infeed_tools.demo import shapes
from infeed_tools.demo.training import train

EPOCHS = 5
ACCURACY = 0.95
"""Accuracy on the test set below which a demo of at least `EPOCHS` exits with status 1."""

_TRAIN, _TEST = 2000, 500


def run_demo(console: Console, epochs: int, folder: Path) -> int:
    """Draws the data set, serves it from another process and trains; returns the exit status."""
    check_folder(folder)
    for number, (part, count) in enumerate((("train", _TRAIN), ("test", _TEST))):
        images = shapes.write_images(folder / part, count, seed=number)
        for _ in track(images, f"drawing {part:5}", count, console=console, transient=True):
            pass
    console.print(f"drew {_TRAIN} + {_TEST} JPEGs of {len(shapes.SHAPES)} shapes in {folder}")
    with tempfile.TemporaryDirectory(prefix="infeed-demo-") as beside:  # the folder has images only
        definition, log = Path(beside) / "pipelines.yaml", Path(beside) / "server.log"
        init = [sys.executable, "-m", "infeed", "init", str(folder), "--output", str(definition)]
        with log.open("wb") as stderr:
            subprocess.run(init, stderr=stderr, check=False)  # noqa: S603 - the server has its error
        with serving(definition, log) as target:
            console.print(f"served from another process at {target}; training on it in this one")
            test, training = yaml.safe_load(definition.read_text(encoding="utf-8"))["pipelines"]
            accuracy, rate, stats = train(target, training, test, epochs, console)
    console.print(f"accuracy on unseen images: [bold]{accuracy:.1%}[/]")
    console.print(f"{rate:.0f} images/s")
    console.print(f"verdict: {stats.verdict}", markup=False, highlight=False)
    if accuracy < ACCURACY and epochs >= EPOCHS:
        console.print(f"[red]below the {ACCURACY:.0%} that {EPOCHS} epochs reach on this data[/]")
        return 1
    console.print(commands(folder, training), markup=False, highlight=False, soft_wrap=True)
    return 0


def check_folder(folder: Path) -> None:
    """Raises `ConfigError` if a folder has data other than an earlier demo's."""
    train = folder / "train"
    classes = {path.name for path in train.iterdir()} if train.is_dir() else set()
    is_own = bool(classes) and classes <= {*shapes.SHAPES}
    if not is_own and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} has other files, and the demo writes its own data set; give another "
            "--directory, or use 'infeed init' for your images",
            file=folder,
        )


@contextmanager
def serving(definition: Path, log: Path) -> Iterator[str]:
    """Serves a definition on a free loopback port within the block, and yields the address. If the
    server does not start, the error has the last lines of its log."""
    # The server ends with its standard input, so also when the demo is killed.
    options = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--with-parent"]
    with log.open("ab") as stderr:
        serve = [sys.executable, "-m", "infeed", "serve", str(definition), *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(serve, stdin=pipe, stdout=pipe, stderr=stderr, text=True) as process:  # noqa: S603
            try:
                assert process.stdout is not None
                ready = re.search(r"serving on (\S+)", process.stdout.readline())
                if ready is None:
                    tail = "\n".join(log.read_text().splitlines()[-20:])
                    raise ServerUnavailableError(f"the server did not start:\n{tail}")
                yield ready[1]
            finally:
                process.terminate()


_LOOP = """\
import infeed.tensorflow
from keras import Sequential, layers, optimizers

relu = {"activation": "relu"}
conv = layers.Conv2D(16, 5, 2, **relu), layers.Conv2D(32, 3, **relu), layers.MaxPooling2D()
head = layers.Conv2D(64, 3, **relu), layers.Flatten(), layers.Dense(64, **relu)
model = Sequential([*conv, *head, layers.Dense(1000, "softmax")])  # at most 1000 classes
model.compile(optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
with infeed.connect("127.0.0.1:7470", "photos") as feed:
    batches, steps = infeed.tensorflow.from_generator(feed), feed.steps_per_epoch
    model.fit(batches, steps_per_epoch=steps, epochs=10, shuffle=False)  # the pipeline shuffles
"""
"""A training loop over the pipeline `photos`."""


def commands(folder: Path, pipeline: str) -> str:
    """Returns commands to paste: to serve a folder, train on it, and look at the server."""
    path = None if "UV" not in os.environ else ""  # uvx's addition to the PATH ends with the demo
    found = [n for n in ("python", "python3") if shutil.which(n, path=path) == sys.executable]
    python = found[0] if found else shlex.quote(sys.executable)
    own = shutil.which("infeed", path=path) == sys.argv[0]
    infeed = "infeed" if own else f"{python} -m infeed"
    return f"""
Next, with {folder} or a folder of your own images:

{infeed} init {shlex.quote(str(folder))} && {infeed} serve pipelines.yaml

Then train on it in another shell:

{python} - <<'END'
{_LOOP.replace("photos", pipeline)}END

And look at it in a browser: http://127.0.0.1:7471"""
