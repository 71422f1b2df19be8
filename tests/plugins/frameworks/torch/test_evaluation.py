"""Tests of evaluations by each library: every sample once, on one rank and on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.client.conftest import Server  # noqa: E402
from tests.plugins.frameworks.torch.evaluate import COUNT, LIBRARIES, exact, fake, model  # noqa: E402
from tests.plugins.frameworks.torch.test_distributed import train  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import infeed  # noqa: E402
from infeed.torch import FeedDataset  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def dataset(**options: Any) -> FeedDataset:
    return FeedDataset("fake", "fake", **{"transport": fake(), "epochs": 1, **options})


@pytest.mark.parametrize("library", ["torch", "accelerate", "transformers"])
def test_evaluation_on_one_rank(library: str) -> None:
    pytest.importorskip(library)
    with dataset(restart=True, empty={"label": -100}) as data:
        for _ in range(2):
            assert LIBRARIES[library](data) == pytest.approx(exact())


@pytest.mark.parametrize("library", LIBRARIES)
def test_evaluation_on_two_ranks(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    server = Server(fake())
    try:
        results = train(library, server.address, tmp_path, program="evaluate")
    finally:
        server.stop()
    assert results == [pytest.approx(exact())] * 2


def test_loop_that_knows_no_empty_slots_is_exact_on_one_rank() -> None:
    net, loss, right, count = model(), 0.0, 0, 0
    with dataset(restart=True) as data:
        for batch in data:
            logits, labels = net(batch["x"]), batch["label"]
            loss += cross_entropy(logits, labels).item() * len(labels)
            right += int((logits.argmax(1) == labels).sum())
            count += len(labels)
    result = {"loss": loss / count, "accuracy": right / count, "count": count}
    assert result == pytest.approx(exact())


def test_means_that_lightning_logs_are_exact_on_one_rank() -> None:
    lightning = pytest.importorskip("lightning")
    counts = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def validation_step(self, batch: dict[str, Any], _: int) -> None:
            logits, labels = self.model(batch["x"]), batch["label"]
            self.log("loss", cross_entropy(logits, labels))
            self.log("accuracy", (logits.argmax(1) == labels).float().mean())
            counts.append(len(labels))

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(accelerator="cpu", **dict.fromkeys(quiet, False))
    with dataset(restart=True) as data:
        (result,) = trainer.validate(Module(), data, verbose=False)
    assert {**result, "count": sum(counts)} == pytest.approx(exact())


def test_loop_that_knows_no_empty_slots_is_refused_on_several_ranks() -> None:
    with (
        dataset(restart=True, shard=infeed.Shard(0, 2)) as data,
        pytest.raises(infeed.InvalidRequestError, match="2 ranks need batches of one shape"),
    ):
        next(iter(data))
    with dataset(shard=infeed.Shard(0, 2)) as data:  # a training drops them
        assert len(list(data)) == COUNT // 64
