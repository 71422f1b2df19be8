"""The contract of every adapter: batches, states and errors of the feed, by a framework's idiom.

A test module of an adapter subclasses `AdapterContract` as `TestContract` and implements `open`.
"""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pytest
from tests.client.conftest import Server
from tests.client.waiting import infeed_threads, until

import infeed
from infeed.shared.errors import FingerprintError, ServerUnavailableError
from infeed.shared.spec import Normalize
from infeed.testing import FakeTransport

COUNT = 26
"""Samples: no multiple of the batch size."""

BATCH_SIZE = 4

Arrays = dict[str, np.ndarray[Any, Any]]


class Adapter(Protocol):
    """An open adapter as the contract sees it."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Returns the iterator over batches in the framework's type, for one pass."""

    def state(self) -> Any:
        """Returns the state after the last batch of the iterator, as the framework saves it."""

    def close(self) -> None: ...


def arrays() -> Arrays:
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (COUNT, 8, 6, 3), np.uint8),
        "number": random.normal(size=COUNT).astype(np.float32),
        "flag": random.integers(0, 2, COUNT).astype(bool),
        "half": random.normal(size=(COUNT, 2)).astype(np.float16),
        "label": np.arange(COUNT, dtype=np.int32),
    }


def fake(**options: Any) -> FakeTransport:
    finish = [Normalize("image", scale=255.0)]
    options = {"finish_transforms": finish, "batch_size": BATCH_SIZE, **options}
    transport = FakeTransport(arrays(), seed=3, **options)
    transport.spec = replace(transport.spec, parts={"web": 10, "books": COUNT - 10})
    return transport


def numpy_batches(transport: FakeTransport, **options: Any) -> list[Arrays]:
    """Returns the batches of the feed, copied: the same that each adapter gives."""
    with infeed.connect("fake", "fake", transport=transport, **options) as feed:
        return [{name: x.copy() for name, x in batch.items()} for batch in feed]


def assert_equal(given: Mapping[str, Any], expected: Arrays) -> None:
    assert sorted(given) == sorted(expected)
    for name, x in expected.items():
        actual = np.asarray(given[name])
        assert actual.dtype == x.dtype, name
        np.testing.assert_array_equal(actual, x, strict=True, err_msg=name)


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


class AdapterContract:
    """Each test is one clause of the contract."""

    names_fields = True
    """Whether the adapter takes names of fields for sample ids and mask."""

    repeats = False
    """Whether a state of the end begins another pass."""

    def open(self, transport: Any, **options: Any) -> Adapter:
        """Opens the adapter for the pipeline "fake" with options of `infeed.connect`.

        `state` among them is what the adapter's `state` returned; `transport` is a fake or the
        address of a server.
        """
        raise NotImplementedError

    @pytest.fixture
    def opened(self) -> Iterator[Callable[..., Adapter]]:
        """`open`, with a `close` at the end of the test."""
        adapters = []

        def open_and_keep(transport: Any, **options: Any) -> Adapter:
            adapters.append(self.open(transport, **options))
            return adapters[-1]

        yield open_and_keep
        for adapter in adapters:
            adapter.close()

    def test_batches_have_the_bits_of_the_feed(self, opened: Callable[..., Adapter]) -> None:
        expected = numpy_batches(fake(), epochs=2)
        # All are kept: memory that is used again would show.
        given = list(opened(fake(), epochs=2))
        assert len(given) == len(expected)
        for batch, other in zip(given, expected, strict=True):
            assert_equal(batch, other)

    @pytest.mark.parametrize("step", range(7))
    def test_state_of_each_step_restores_the_rest(
        self, opened: Callable[..., Adapter], step: int
    ) -> None:
        expected = numpy_batches(fake(), epochs=1)
        if self.repeats and step == len(expected):
            return
        first = opened(fake(), epochs=1)
        iterator = iter(first)
        for _ in range(step):
            next(iterator)
        state = first.state()
        first.close()
        rest = list(opened(fake(), epochs=1, state=state))
        assert len(rest) == len(expected) - step
        for batch, other in zip(rest, expected[step:], strict=True):
            assert_equal(batch, other)

    def test_state_restores_on_another_world_size(self, opened: Callable[..., Adapter]) -> None:
        ranks = [
            opened(fake(), epochs=1, batch_size=2, shard=infeed.Shard(rank, 3)) for rank in range(3)
        ]
        labels, states = [], []
        for rank in ranks:
            iterator = iter(rank)
            labels += [np.asarray(next(iterator)["label"]) for _ in range(2)]
            states.append(rank.state())
        rest = [
            opened(
                fake(remainder="pad"),
                epochs=1,
                batch_size=2,
                shard=infeed.Shard(rank, 2),
                state=states[2 - rank],
                empty={"label": -1},
            )
            for rank in range(2)
        ]
        padded = [[np.asarray(batch["label"]) for batch in rank] for rank in rest]
        assert len(padded[0]) == len(padded[1]) == 4  # 14 samples remain
        seen = np.concatenate([*labels, *padded[0], *padded[1]])
        assert sorted(seen.tolist()) == [-1, -1, *range(COUNT)]  # two slots are empty

    def test_ids_mask_and_part_are_fields_where_asked_for(
        self, opened: Callable[..., Adapter]
    ) -> None:
        if not self.names_fields:
            return
        options = {"epochs": 1, "remainder": "pad"}
        with infeed.connect("fake", "fake", transport=fake(), **options) as feed:
            expected = list(feed)
        for names in ({"ids": "_id", "mask": "_mask", "part": "_part"}, {"mask": "_mask"}):
            for batch, other in zip(opened(fake(), **options, **names), expected, strict=True):
                part = np.where(other.mask, other.source == "books", -1)
                for option, x in {
                    "ids": other.sample_ids,
                    "mask": other.mask,
                    "part": part,
                }.items():
                    if option in names:  # JAX has ids of 32 bits
                        np.testing.assert_array_equal(batch[names[option]], x)
                fields = batch.keys() - set(names.values())
                assert_equal({name: batch[name] for name in fields}, other)

    @pytest.mark.parametrize("name", ["label", "", 3])
    def test_name_that_cannot_be_a_field_is_refused(
        self, opened: Callable[..., Adapter], name: Any
    ) -> None:
        if self.names_fields:
            with pytest.raises(infeed.InvalidRequestError, match=r"^ids"):
                next(iter(opened(fake(), ids=name)))

    def test_unknown_option_names_those_of_the_adapter(
        self, opened: Callable[..., Adapter]
    ) -> None:
        if self.names_fields:
            with pytest.raises(TypeError, match=r"has no option 'epoch' \(did you mean 'epochs'\?"):
                list(opened(fake(), epoch=1))

    @pytest.mark.parametrize(("remainder", "steps"), [("drop", 3), ("pad", 4)])
    def test_all_ranks_end_at_the_same_step(
        self, opened: Callable[..., Adapter], remainder: str, steps: int
    ) -> None:
        for rank in range(2):
            shard = infeed.Shard(rank, 2)
            empty = {"label": -1}
            options = {"epochs": 1, "shard": shard, "remainder": remainder, "empty": empty}
            expected = numpy_batches(fake(), **options)
            given = list(opened(fake(), **options))
            assert len(given) == len(expected) == steps
            assert_equal(given[-1], expected[-1])

    @pytest.mark.parametrize("steps", [0, 2])
    @pytest.mark.parametrize(
        "copy_of", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"]
    )
    def test_copy_of_the_iterator_takes_no_batch_from_it(
        self, opened: Callable[..., Adapter], copy_of: Callable[[Any], Any], steps: int
    ) -> None:
        iterator = iter(opened(fake(), epochs=1))
        given = [next(iterator) for _ in range(steps)]
        expected = numpy_batches(fake(), epochs=1)
        copied, problem = None, ""
        try:
            copied = copy_of(iterator)
        except (infeed.InvalidRequestError, TypeError, NotImplementedError) as error:
            problem = str(error)  # Python's for generators, PyTorch's for loaders
        if copied is None:
            assert type(iterator).__name__ in problem
        else:
            for batch, other in zip(copied, expected[steps:], strict=True):
                assert_equal(batch, other)
        for batch, other in zip([*given, *iterator], expected, strict=True):
            assert_equal(batch, other)

    def test_early_exit_ends_every_thread(self, opened: Callable[..., Adapter]) -> None:
        adapter = opened(fake())
        for _ in adapter:
            break
        adapter.close()
        until(lambda: not infeed_threads())

    def test_error_of_the_feed_arrives_as_itself(self, opened: Callable[..., Adapter]) -> None:
        def fail(start: int) -> None:
            if start == 2 * BATCH_SIZE:
                raise infeed.SampleError("sample 7 is bad")

        adapter = opened(fake(before_batch=fail))
        given = []
        with pytest.raises(infeed.SampleError, match="sample 7 is bad"):
            given.extend(adapter)  # takes those before
        for batch, other in zip(given, numpy_batches(fake(), epochs=1), strict=False):
            assert_equal(batch, other)

    def test_error_of_connect_arrives_as_itself(self, opened: Callable[..., Adapter]) -> None:
        with pytest.raises(infeed.InvalidRequestError, match="epochs"):
            list(opened(fake(), epochs=0))

    def test_lost_connection_is_not_seen(self, opened: Callable[..., Adapter]) -> None:
        losses = iter([2 * BATCH_SIZE])

        def lose(start: int) -> None:
            if start == next(losses, None):
                raise ServerUnavailableError("lost")

        given = list(opened(fake(before_batch=lose), epochs=1))
        for batch, other in zip(given, numpy_batches(fake(), epochs=1), strict=True):
            assert_equal(batch, other)

    def test_state_is_right_after_another_fingerprint(self, opened: Callable[..., Adapter]) -> None:
        def restart(start: int) -> None:
            if start == 4 * BATCH_SIZE:
                transport.spec = replace(transport.spec, fingerprint="another")
                raise ServerUnavailableError("lost")

        transport = fake(before_batch=restart)
        adapter = opened(transport, epochs=1)
        given = []
        with pytest.raises(FingerprintError, match="another"):
            given.extend(adapter)  # takes those before
        rest = opened(fake(), epochs=1, state=adapter.state())
        expected = numpy_batches(fake(), epochs=1)
        for batch, other in zip([*given, *rest], expected, strict=True):
            assert_equal(batch, other)

    def test_restarted_server_continues(
        self, opened: Callable[..., Adapter], new_address: Callable[[], str]
    ) -> None:
        def slow(start: int) -> None:
            time.sleep(0.01)

        server = Server(fake(before_batch=slow), address=new_address())
        try:
            adapter = opened(server.address, epochs=4)
            given = []
            for batch in adapter:
                given.append(batch)
                if len(given) == 3:
                    server.stop()
                    server.start()
        finally:
            server.stop()
        expected = numpy_batches(fake(), epochs=4)
        for batch, other in zip(given, expected, strict=True):
            assert_equal(batch, other)
