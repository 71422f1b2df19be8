"""Tests of Hugging Face's Trainer that accumulates gradients, by the recipe of the example."""

from __future__ import annotations

import runpy
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plugins.frameworks.torch.fakes import fake, passes  # noqa: E402
from tests.plugins.frameworks.torch.training import loss, model, weights  # noqa: E402
from transformers import TrainerCallback, TrainingArguments  # noqa: E402

from infeed.torch import FeedDataset  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
]

EXAMPLE = Path(__file__).parents[4] / "examples" / "transformers_images.py"
RECIPE = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
EPOCHS = 2


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Counts what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.seen = model(), []

    def forward(self, x: Any) -> dict[str, Any]:
        self.seen.append(x.tolist())
        return {"loss": loss(self.layers, {"x": x})}


class Stop(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint after a step, and ends the training there."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


def train(folder: Path, stop: int | None, resume: str | None = None, **options: Any) -> Model:
    """Trains until a step, or to the end, with two batches for each step."""
    trained = Model()
    own = {"ignore_data_skip": True, "gradient_accumulation_steps": 2, **options}
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **own,
    )
    with FeedDataset("fake", "fake", transport=fake(), epochs=1) as dataset:
        RECIPE.FeedTrainer(
            trained,
            arguments,
            train_dataset=dataset,
            callbacks=[RECIPE.FeedState(dataset), Stop(stop)],
        ).train(resume_from_checkpoint=resume)
    return trained


@pytest.mark.parametrize("stop", [1, 3, 4], ids=["within an epoch", "its end", "the second epoch"])
def test_resumed_accumulation_equals_an_uninterrupted_one(stop: int, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", None)
    assert whole.seen == list(chain.from_iterable(passes(EPOCHS)))
    first = train(tmp_path / "a", stop)
    second = train(tmp_path / "a", None, str(tmp_path / "a" / f"checkpoint-{stop}"))
    assert first.seen + second.seen == whole.seen
    assert weights(second.layers) == weights(whole.layers) != weights(first.layers)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ignore_data_skip": False}, "ignore_data_skip must be True"),
        ({"gradient_accumulation_steps": 4}, "must divide the 6 batches"),
    ],
)
def test_option_that_could_not_be_exact_is_refused(
    options: Any, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        train(tmp_path, None, **options)
