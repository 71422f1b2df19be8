"""`FeedCheckpoint`: a run that is killed at any batch continues with the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import infeed
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed.testing import FakeTransport

tf = pytest.importorskip("tensorflow")

from infeed.tensorflow import FeedCheckpoint, from_generator  # noqa: E402 - it needs TensorFlow
from infeed_frameworks.keras.feed_reader import FeedReader  # noqa: E402

# Of Keras, when it saves a variable, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS, EPOCHS = 3, 3
QUIET = {"shuffle": False, "verbose": 0}
SAMPLES = 2 * STEPS


class Killed(Exception):  # noqa: N818 - it is no error
    """Ends `fit`, as a kill of the process does."""


class KillAfter(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


class Recording(tf.keras.Model):  # type: ignore[misc]
    """Keeps the labels of each batch that it is trained on. Its weights depend on their order."""

    seen: list[list[int]]

    def train_step(self, data: Any) -> Any:
        _, y, *_ = data
        tf.numpy_function(lambda labels: self.seen.append(labels.astype(int).tolist()), [y], [])
        return super().train_step(data)


def new_model(**options: Any) -> Recording:
    inputs = tf.keras.Input((1,))
    outputs = tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs)
    model = Recording(inputs, outputs)
    model.compile(tf.keras.optimizers.SGD(0.01, 0.9), "mse", jit_compile=False, **options)
    model.seen = []
    return model


MODELS: list[Recording] = []
"""One model, since Keras takes most of a second to trace a training step."""


def reset_model() -> Recording:
    """Returns the model as it was before its first training."""
    if not MODELS:
        MODELS.append(new_model())
        MODELS[0].optimizer.build(MODELS[0].trainable_variables)
    (model,) = MODELS
    for variable in [*model.weights, *model.optimizer.variables]:
        ones = "kernel" in variable.path and "momentum" not in variable.path
        if "learning_rate" not in variable.path:
            variable.assign(np.full(variable.shape, int(ones)))
    model.seen = []
    return model


class Run(NamedTuple):
    """The labels of each batch of a run, and the weights at its end."""

    seen: list[list[int]]
    weights: list[Any]


def connect(state: Any = None, **options: Any) -> infeed.Feed:
    numbers = np.arange(SAMPLES, dtype=np.float32)
    fake = FakeTransport({"x": numbers[:, None] / SAMPLES, "label": numbers}, batch_size=2, seed=1)
    return infeed.connect("fake", "fake", state=state, transport=fake, **options)


def fit(
    folder: Path,
    *callbacks: Any,
    save_every: Any = 1,
    dataset_of: Callable[[infeed.Feed], Any] = from_generator,
    feed_options: dict[str, Any] | None = None,
    model: Recording | None = None,
    **options: Any,
) -> Run:
    """Starts or continues a run; returns it also if it is killed."""
    model = model or reset_model()
    with connect(FeedCheckpoint.saved_state(folder), **(feed_options or {})) as feed:
        checkpoint = FeedCheckpoint(feed, folder, save_every=save_every)
        of_epochs = {"epochs": EPOCHS, "steps_per_epoch": STEPS}
        options = {**of_epochs, "initial_epoch": checkpoint.initial_epoch, **options}
        all_callbacks = [checkpoint, *callbacks]
        with suppress(Killed):
            model.fit(dataset_of(feed), callbacks=all_callbacks, **QUIET, **options)
    return Run(model.seen, model.get_weights())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that is not killed."""
    run = fit(tmp_path_factory.mktemp("whole"), save_every="epoch")
    assert len(run.seen) == EPOCHS * STEPS
    return run


def last_weights(folder: Path) -> list[Any]:
    model = reset_model()
    (saved,) = folder.iterdir()
    model.load_weights(str(saved / "model.weights.h5"))
    return model.get_weights()  # type: ignore[no-any-return]


def saved_steps(folder: Path) -> int:
    state = FeedCheckpoint.saved_state(folder)
    return 0 if state is None else int(state["position"]) // 2


def assert_resumes(folder: Path, whole: Run, saved: int, **options: Any) -> None:
    """Continues a killed run, and compares what it trains on, and the weights, with `whole`."""
    assert saved_steps(folder) == saved
    run = fit(folder, **options)
    assert run.seen == whole.seen[saved:]
    for resumed, expected in zip(run.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(resumed, expected)


def test_a_run_killed_again_and_again_trains_on_each_batch_once(tmp_path: Path, whole: Run) -> None:
    options = {"feed_options": {"epochs": EPOCHS}}
    saved = []
    while len(saved) < EPOCHS * STEPS and (steps := saved_steps(tmp_path)) not in saved:
        saved.append(steps)
        run = fit(tmp_path, KillAfter(2), **options)
        assert run.seen == whole.seen[steps : steps + 2]
    # The last step of an epoch, such as step 6, is saved with its end, after the validation.
    assert saved == [0, 2, 4, 5, 7, 8, 9]
    assert run.seen == []  # nothing is left to train on
    for resumed, expected in zip(last_weights(tmp_path), whole.weights, strict=True):
        np.testing.assert_array_equal(resumed, expected)


def test_a_run_saved_by_epochs_repeats_the_epoch(tmp_path: Path, whole: Run) -> None:
    fit(tmp_path, KillAfter(5), save_every="epoch")
    assert_resumes(tmp_path, whole, STEPS)


def test_batches_prefetched_between_feed_and_fit_are_not_lost(tmp_path: Path, whole: Run) -> None:
    def with_prefetch(feed: infeed.Feed) -> Any:
        return from_generator(feed).prefetch(4)

    options: dict[str, Any] = {"dataset_of": with_prefetch}
    fit(tmp_path, KillAfter(4), **options)
    assert fit(tmp_path, **options).seen == whole.seen[4:]


@pytest.mark.parametrize(
    ("dataset_of", "options"),
    [
        (lambda feed: from_generator(feed).map(lambda x, y: (x + 0.0, y)), {}),
        (from_generator, {"class_weight": dict.fromkeys(range(SAMPLES), 1.0)}),
    ],
    ids=["map", "class_weight"],
)
@pytest.mark.parametrize("epochs", [None, EPOCHS])
def test_a_run_without_a_length_continues_within_an_epoch(
    tmp_path: Path, whole: Run, dataset_of: Any, options: Any, epochs: int | None
) -> None:
    options = {"dataset_of": dataset_of, "feed_options": {"epochs": epochs}, **options}
    fit(tmp_path, KillAfter(4), **options)
    assert_resumes(tmp_path, whole, 4, **options)


def test_a_checkpoint_of_another_feed_is_refused() -> None:
    with connect() as feed, connect() as other:
        options = {"callbacks": [FeedCheckpoint(other)], "steps_per_epoch": STEPS, **QUIET}
        with pytest.raises(InvalidRequestError, match="for the feed that fit reads"):
            reset_model().fit(from_generator(feed), **options)


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_a_dataset_of_smaller_batches_is_refused(steps_per_execution: int, tmp_path: Path) -> None:
    def dataset_of(feed: infeed.Feed) -> Any:
        return from_generator(feed).unbatch().batch(1)

    problem = r"trained on more batches than .* do not use unbatch, batch, filter"
    model = new_model(steps_per_execution=steps_per_execution)
    with pytest.raises(InvalidRequestError, match=problem):
        fit(tmp_path, dataset_of=dataset_of, model=model)


def test_several_steps_per_execution_are_counted(tmp_path: Path, whole: Run) -> None:
    class Positions(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            positions.append(checkpoint.state()["position"])

    positions: list[int] = []
    model = new_model(steps_per_execution=2)
    with connect(epochs=1) as feed:
        checkpoint = FeedCheckpoint(feed)
        model.fit(from_generator(feed), callbacks=[checkpoint, Positions()], **QUIET)
    assert positions == [4, 6]  # two steps, and the one that is left of the feed
    assert model.seen == whole.seen[:STEPS]


def test_a_batch_taken_to_build_the_model_is_trained_on(whole: Run) -> None:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = new_model()
    model.seen = []
    options = {"steps_per_epoch": STEPS, **QUIET}
    with connect() as feed:
        dataset = from_generator(feed)
        model.fit(dataset, callbacks=[FeedCheckpoint(feed)], **options)
        assert model.seen == whole.seen[:STEPS]
        model.fit(dataset, callbacks=[FeedCheckpoint(feed)], **options)
        assert model.seen == whole.seen[: 2 * STEPS]


def test_fit_continues_after_an_interrupt(whole: Run) -> None:
    model = reset_model()
    with connect() as feed:
        checkpoint = FeedCheckpoint(feed)
        dataset, options = from_generator(feed), {"steps_per_epoch": STEPS, **QUIET}
        with pytest.raises(Killed):
            model.fit(dataset, callbacks=[checkpoint, KillAfter(2)], **options)
        model.fit(dataset, callbacks=[checkpoint], **options)
    assert model.seen == whole.seen[: 2 + STEPS]


def test_a_batch_of_an_iteration_that_was_left_is_for_the_next() -> None:
    reader = FeedReader()
    with connect() as feed:
        reader.track(feed)
        left = reader.begin(feed)
        batch = reader.take(feed, left)
        reader.begin_training()
        following = reader.begin(feed)
        with pytest.raises(InvalidRequestError, match="another iteration over the feed of 'fake'"):
            reader.take(feed, left)
        assert reader.take(feed, following) is batch
    reader.complete(1)
    assert reader.completed == 1


def test_only_rank_0_writes(tmp_path: Path) -> None:
    for rank in (1, 0):
        options = {"shard": infeed.Shard(rank, 3)}
        fit(tmp_path, feed_options=options, epochs=1, steps_per_epoch=1)
        assert saved_steps(tmp_path) == (0 if rank else 3)
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["feed.json", "model.weights.h5"]


def test_a_kill_while_saving_leaves_the_checkpoint_before(
    tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise Killed

    fit(tmp_path, KillAfter(2))
    with monkeypatch.context() as patch:
        patch.setattr(Recording, "save_weights", lambda _, path: write_half(path))
        fit(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # one of them is unfinished
    assert_resumes(tmp_path, whole, 2)
    assert len(list(tmp_path.iterdir())) == 1


# --- mistakes ---


def test_a_generator_is_refused_on_the_tensorflow_backend() -> None:
    with connect() as feed:
        options = {"steps_per_epoch": STEPS, "callbacks": [FeedCheckpoint(feed)], **QUIET}
        with pytest.raises(InvalidRequestError, match=r"give fit infeed\.tensorfl"):
            reset_model().fit(infeed.keras.generator(feed), **options)


def test_replicas_that_take_whole_batches_are_refused() -> None:
    with connect() as feed:
        options = {"steps_per_epoch": STEPS, "callbacks": [FeedCheckpoint(feed)], **QUIET}
        with pytest.raises(InvalidRequestError, match="2 replicas each take a whole batch of the"):
            reset_model().fit(from_generator(feed, replicas=2), **options)


def test_another_initial_epoch_is_refused(tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    with pytest.raises(
        InvalidRequestError, match=r"epoch 0, but the checkpoint continues in epoch 1"
    ):
        fit(tmp_path, initial_epoch=0)


def test_a_feed_that_begins_elsewhere_is_refused(tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    with (
        connect() as feed,
        pytest.raises(CursorError, match="is at position 6, but the feed is at"),
    ):
        reset_model().fit(
            from_generator(feed),
            steps_per_epoch=STEPS,
            callbacks=[FeedCheckpoint(feed, tmp_path)],
            **QUIET,
        )


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    (folder,) = tmp_path.iterdir()
    (folder / "feed.json").write_text("{}")
    with pytest.raises(CursorError, match=r"checkpoint .* cannot be read: KeyError.*remove it"):
        FeedCheckpoint.saved_state(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"directory": "gs://bucket/run"}, "a local folder, not 'gs://bucket/run'"),
        ({"directory": __file__}, "must be a local folder, not"),
        ({"save_every": 0}, 'from 1 to .*, or None for only "epoch", not 0'),
        ({"save_every": "step"}, "save_every must be an integer"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with connect() as feed, pytest.raises(InvalidRequestError, match=message):
        FeedCheckpoint(feed, **options)


def test_a_further_epoch_of_a_finite_feed_names_the_remedy() -> None:
    with connect(epochs=1) as feed:
        dataset = from_generator(feed)
        with pytest.raises(tf.errors.UnknownError, match=r"ended after 3 batches.*steps_per_epoch"):
            reset_model().fit(dataset, epochs=2, **QUIET)
