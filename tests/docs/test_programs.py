"""The `python` blocks of the pages, each run on its own against a server."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.harness import doc_blocks
from tests.harness.server import InfeedServer

import infeed

TESTED_BY = {
    "docs/grain.md": "tests/plugins/frameworks/grain/test_page.py",
    "docs/jax.md": "tests/plugins/frameworks/jax/test_page.py",
    "docs/keras.md": "tests/plugins/frameworks/keras/on_backend.py",
    "docs/observability.md": "tests/client/shared/telemetry/test_page.py",
    "docs/pytorch.md": "tests/plugins/frameworks/torch/test_page.py",
    "docs/tensorflow.md": "tests/plugins/frameworks/tensorflow/test_page.py",
}
"""Page → the test that runs its blocks one after another, with what they need of each other."""

BLOCKS = [
    block
    for block in doc_blocks.to_run("python")
    if block.page not in TESTED_BY
    and not re.match(r"# \w+\.py\n", block.code)
    and not re.search(r"infeed\.(jax|torch)", block.code)
]
"""All others, except modules of definitions, which `test_definitions.py` uses, and blocks of JAX
and PyTorch, which tests of those run: processes of other tests fork."""


@pytest.mark.parametrize(("page", "test"), [*TESTED_BY.items(), *doc_blocks.FOLLOWED.items()])
def test_page_has_a_test(page: str, test: str) -> None:
    assert Path(page).stem.replace("-", "_") in (doc_blocks.ROOT / test).read_text() + test


class EnoughError(Exception):
    """Ends a program that trains without end."""


class Trained:
    """A model that the programs train; it counts its steps, and ends with the fifth."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, *arguments: Any) -> Any:
        """Stands for a training step: returns its first argument."""
        self.steps += 1
        if self.steps == 5:
            raise EnoughError
        return arguments[0]

    def fit(self, data: Any, **options: Any) -> None:
        """Trains a Keras model for two steps of the epochs that are asked for."""
        import keras

        layers = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        model.fit(data, **{**options, "epochs": 1, "steps_per_epoch": 2, "verbose": 0})
        self.steps += 2


@pytest.fixture
def model() -> Trained:
    return Trained()


@pytest.fixture
def names(folder: Path, model: Trained) -> dict[str, Any]:
    """What the programs have from the program around them."""
    names = {
        "cursor": json.loads((folder / "run.json").read_text()),
        "infeed": infeed,
        "loss_of": lambda batch: batch["image"].mean(),
        "model": model,
        "params": {},
        "predict": lambda images: images[:, 0, 0, 0] * 0,
        "save_model": lambda path: Path(path).mkdir(exist_ok=True),
        "step": model.step,
        "train_step": model.step,
    }
    return {**names, "state": names["cursor"]}


@pytest.mark.filterwarnings("ignore:.*__array__:DeprecationWarning")  # of Keras
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_program_runs(
    block: doc_blocks.Block,
    folder: Path,
    server: InfeedServer,
    names: dict[str, Any],
    model: Trained,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "distribute(" in block.code:
        server = request.getfixturevalue("service")
    code = block.code.replace("127.0.0.1:7470", server.address)
    code = code.replace("% 1000", "% 2")  # how often it saves
    monkeypatch.chdir(folder)
    program = folder / "program.py"
    program.write_text(code)  # a file, since the fingerprint reads the source code of functions
    space = {**names, "__name__": "program", "__file__": str(program)}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(EnoughError):
        exec(compile(code, str(program), "exec", dont_inherit=True), space)
    for test in [value for name, value in space.items() if name.startswith("test_")]:
        test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})
    for value in space.values():
        if isinstance(value, infeed.Feed):
            value.close()
    if re.search(r"\b(step|train_step)\(|\.fit\(", code):
        assert model.steps, "the program trained no step"
