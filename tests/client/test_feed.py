"""Feeds over the fake transport: order, ranks, resuming, ends and errors."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import threading
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, infeed_threads, until

import infeed
from infeed.prefetch import prefetcher as prefetcher_module
from infeed.rpc import channel as channel_module
from infeed.shared.errors import (
    CursorError,
    FeedClosedError,
    InfeedError,
    InvalidRequestError,
    PipelineNotFoundError,
    SampleError,
    StallError,
)
from infeed.shared.spec import Cast, FieldSpec, Guarantee, Normalize, OneHot
from infeed.testing import FakeTransport


def connect(fake: FakeTransport, **options: Any) -> infeed.Feed:
    return infeed.connect("fake", "fake", transport=fake, **options)


def test_batches_hold_the_samples_of_the_arrays(fake: FakeTransport, arrays: Any) -> None:
    with connect(fake, epochs=1) as feed:
        batches = list(feed)
        assert (feed.steps, feed.batch_size, feed.steps_per_epoch) == (12, 4, 12)
        assert feed.spec == fake.spec
        assert feed.element_spec[0] == FieldSpec("image", "uint8", (3, 4))
        assert feed.guarantee.delivery == "exactly_once"
        with pytest.raises(StopIteration):
            next(feed)
    for index, batch in enumerate(batches):
        assert (batch.start, batch.epoch, batch.slots) == (4 * index, 0, 4)
        assert batch.mask.all()
        np.testing.assert_array_equal(batch["label"], batch.sample_ids)
        np.testing.assert_array_equal(batch["image"], arrays["image"][batch.sample_ids])
        assert batch["image"].flags.writeable
    assert "image: uint8[4, 3, 4]" in repr(batches[0])
    until(lambda: not infeed_threads())


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 7),
        ({"remainder": "pad"}, 7),
        ({"epochs": 1}, 7),
        ({"epochs": 1, "remainder": "pad"}, 8),
        ({"epochs": 3, "remainder": "pad"}, 7),
        ({"epochs": 1, "remainder": "pad", "batch_size": 64}, 1),
        ({"remainder": "pad", "batch_size": 64}, 1),
        ({"epochs": 3, "batch_size": 64}, 1),
    ],
)
def test_an_epoch_has_its_padded_step(fake: FakeTransport, options: Any, steps: int) -> None:
    with connect(fake, **{"batch_size": 7, **options}) as feed:
        assert feed.spec.sample_count == 50
        assert feed.steps_per_epoch == steps


def test_state_that_cannot_be_resumed_is_marked_and_logged_once(
    fake: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    guarantee = Guarantee("none", "at_most_once", "none")
    fake.spec = replace(fake.spec, guarantee=guarantee)
    with connect(fake) as feed:
        assert "resumable" not in feed.state()  # the beginning can be requested
        next(feed)
        assert not caplog.records
        state = feed.state()
        assert feed.state() == state
    assert state["resumable"] is False
    message = "fake guarantees no order, so no run can resume from this state"
    assert caplog.text.count(message) == 1
    with pytest.raises(CursorError, match="cannot resume"):
        connect(fake, state=json.loads(json.dumps(state)))


def test_feed_without_a_whole_step_is_rejected(fake: FakeTransport) -> None:
    with pytest.raises(InvalidRequestError, match=r"2 ranks need 60 samples for a step, and .* 50"):
        connect(fake, batch_size=30, epochs=1, shard=infeed.Shard(0, 2))
    assert fake.streams == 0


def test_feed_closes_only_its_own_transport(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(FakeTransport):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    own, given = Closing(arrays), Closing(arrays)
    monkeypatch.setattr(channel_module, "GrpcTransport", lambda *_: own)
    for transport in (None, given):
        infeed.connect("host:1", "fake", transport=transport).close()
        with pytest.raises(PipelineNotFoundError):
            infeed.connect("host:1", "other", transport=transport)
    assert (own.closed, given.closed) == (2, 0)


@pytest.mark.parametrize(
    ("epochs", "remainder", "batch_stride", "on_error", "may_mask"),
    [
        (None, "pad", 0, "raise", False),
        (1, "drop", 0, "raise", False),
        (1, "pad", 0, "raise", True),
        (None, "pad", 4, "raise", True),  # every epoch ends with a partial batch
        (None, "drop", 0, "mask", True),
    ],
)
def test_may_mask_where_slots_can_be_empty(
    arrays: Any, epochs: Any, remainder: Any, batch_stride: int, on_error: Any, may_mask: bool
) -> None:
    fake = FakeTransport(arrays, batch_size=4, on_error=on_error)
    fake.spec = replace(fake.spec, batch_stride=batch_stride)
    with connect(fake, epochs=epochs, remainder=remainder) as feed:
        assert feed.may_mask is may_mask


@pytest.mark.parametrize("finish", ["trainer", "server"])
def test_finish_transforms_give_the_same_on_both_sides(arrays: Any, finish: Any) -> None:
    fake = FakeTransport(
        arrays,
        batch_size=20,
        remainder="pad",
        finish_transforms=[
            Normalize("image", 255.0, (0.5,), (0.25,)),
            OneHot("label", 50),
            Cast("label", "uint8"),
        ],
    )
    with connect(fake, epochs=1, finish=finish) as feed:
        batches = list(feed)
        assert feed.element_spec[1] == FieldSpec("label", "uint8", (50,))
    assert len(batches) == 3
    for batch in batches:
        samples = batch.sample_ids[batch.mask]
        expected = (
            arrays["image"][samples].astype(np.float32) / np.float32(255) - np.float32(0.5)
        ) / np.float32(0.25)
        np.testing.assert_array_equal(batch["image"][batch.mask], expected)
        assert not batch["image"][~batch.mask].any()
        assert batch["label"].argmax(axis=1)[batch.mask].tolist() == samples.tolist()


@pytest.mark.parametrize("finish", ["trainer", "server", "none"])
def test_empty_slots_have_the_values_that_were_asked_for(arrays: Any, finish: Any) -> None:
    fake = FakeTransport(
        arrays, batch_size=20, finish_transforms=[Normalize("image", 255.0, (0.5,), (0.25,))]
    )
    values: dict[str, float] = {"label": -100} | ({} if finish == "none" else {"image": 0.5})
    options = {"epochs": 1, "remainder": "pad", "finish": finish}
    with connect(fake, **options) as feed, connect(fake, **options, empty=values) as filled:
        for plain, batch in zip(feed, filled, strict=True):
            np.testing.assert_array_equal(batch.mask, plain.mask)
            np.testing.assert_array_equal(batch.sample_ids, plain.sample_ids)
            for name, x in plain.items():
                np.testing.assert_array_equal(batch[name][batch.mask], x[batch.mask])
                assert batch[name].dtype == x.dtype
                assert (batch[name][~batch.mask] == values.get(name, 0)).all()
    assert not batch.mask.all()


@pytest.mark.parametrize(
    ("empty", "options", "problem"),
    [
        (
            {"labels": -100},
            {},
            r"'labels' cannot be -100: .* \(did you mean 'label'\?\); fields",
        ),
        ({"image": -1}, {}, "'image' cannot be -1: its type is uint8; cast it in the pipeline"),
        ({"label": 0.5}, {}, "'label' cannot be 0.5: its type is int64"),
        ({"image": 1}, {"finish": "none"}, 'left to the consumer; give finish="trainer"'),
    ],
)
def test_value_that_empty_slots_cannot_have_is_refused(
    arrays: Any, empty: Any, options: Any, problem: str
) -> None:
    transforms = [Normalize("image", 255.0)] if options else []
    fake = FakeTransport(arrays, batch_size=20, finish_transforms=transforms)
    with pytest.raises(InvalidRequestError, match=f"^empty: field .*{problem}"):
        connect(fake, empty=empty, **options)


@pytest.mark.parametrize(("remainder", "steps"), [("drop", 12), ("pad", 13)])
def test_data_set_of_unknown_length_is_delivered_to_its_end(
    arrays: Any, remainder: Any, steps: int
) -> None:
    fake = FakeTransport(arrays, batch_size=4, length_known=False, shuffle=False)
    with connect(fake, epochs=1, remainder=remainder) as feed:
        assert feed.steps is None
        assert feed.steps_per_epoch is None
        batches = list(feed)
        assert feed.state()["position"] == (48 if remainder == "drop" else 50)
    assert len(batches) == steps
    assert [i for b in batches for i in b.sample_ids[b.mask]] == list(range(50))[: 4 * steps]


def test_error_is_raised_in_order_and_repeated(arrays: Any) -> None:
    def fail(start: int) -> None:
        if start == 12:
            raise SampleError("a.jpg is no image", file="a.jpg")

    fake = FakeTransport(arrays, batch_size=4, before_batch=fail)
    with connect(fake) as feed:
        assert [next(feed).start for _ in range(3)] == [0, 4, 8]
        for _ in range(2):
            with pytest.raises(SampleError, match=r"a\.jpg"):
                next(feed)
        assert feed.state()["position"] == 12


def test_timeout_raises_a_stall_error_and_the_feed_continues(arrays: Any) -> None:
    release = threading.Event()

    def wait(start: int) -> None:
        if start == 8:
            release.wait(HANG_SECONDS)

    with connect(FakeTransport(arrays, batch_size=4, before_batch=wait)) as feed:
        feed.next(HANG_SECONDS)
        feed.next(HANG_SECONDS)
        with pytest.raises(StallError, match=r"fake: position 8 of 'fake'.*within 0.1 s"):
            feed.next(timeout=0.1)
        release.set()
        assert feed.next(HANG_SECONDS).start == 8


@pytest.mark.parametrize("transforms", [(), (Normalize("image", scale=255.0),)])
def test_close_wakes_a_waiting_trainer(
    arrays: Any, monkeypatch: pytest.MonkeyPatch, transforms: Any
) -> None:
    monkeypatch.setattr(prefetcher_module, "JOIN_TIMEOUT_SECONDS", 0.01)  # the reader is stuck
    release = threading.Event()
    stuck = FakeTransport(
        arrays,
        batch_size=4,
        finish_transforms=transforms,
        before_batch=lambda start: release.wait(2 * HANG_SECONDS),
    )
    feed = connect(stuck)
    errors: list[BaseException] = []

    def train() -> None:
        try:
            next(feed)
        except InfeedError as error:
            errors.append(error)

    trainer = threading.Thread(target=train)
    trainer.start()
    until(lambda: blocked_in(trainer, "wait", "first"))
    feed.close()
    feed.close()
    trainer.join(HANG_SECONDS)
    release.set()
    until(lambda: not infeed_threads())
    assert isinstance(errors[0], FeedClosedError)
    with pytest.raises(FeedClosedError, match="'fake' was closed"):
        next(feed)


def test_each_batch_goes_to_one_of_several_threads(arrays: Any) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    with connect(FakeTransport(arrays, batch_size=4), epochs=40) as feed:

        def take(starts: list[int]) -> None:
            starts.extend(batch.start for batch in feed)

        threads = [threading.Thread(target=take, args=(starts,)) for starts in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
        assert sorted(start for starts in taken for start in starts) == [4 * k for k in range(500)]
        assert all(starts == sorted(starts) for starts in taken)
        stats = feed.stats()
        assert (stats.steps, stats.samples, feed.state()["position"]) == (500, 2000, 2000)


def wait_until_idle() -> None:
    """Waits until the only reader may not request another step."""
    (reader,) = infeed_threads("infeed-reader")
    until(lambda: blocked_in(reader, "wait", "wait_for_step"))


def test_prefetch_is_bounded_in_bytes(arrays: Any) -> None:
    starts: list[int] = []
    fake = FakeTransport(arrays, batch_size=4, before_batch=starts.append)
    batch_bytes = 64 + 32
    with connect(fake, prefetch_bytes=5 * batch_bytes) as feed:
        until(lambda: len(starts) >= 5)
        wait_until_idle()
        assert len(starts) == 5
        next(feed)
        until(lambda: len(starts) >= 6)
        wait_until_idle()
        assert len(starts) == 6


def test_dropped_feed_ends_its_threads(fake: FakeTransport) -> None:
    feed = connect(fake)
    next(feed)
    del feed
    until(lambda: not infeed_threads())


def test_feed_cannot_be_used_after_a_fork(fake: FakeTransport) -> None:
    with connect(fake) as feed:
        next(feed)
        # Simulates the process id in a forked child. A real fork of a process with the threads of
        # gRPC and TensorFlow could hang the test.
        feed._pid = os.getpid() + 1
        with pytest.raises(FeedClosedError, match="spawn"):
            next(feed)
        feed.close()
        feed._pid = os.getpid()
        assert next(feed).start == 4
    assert "spawn" in multiprocessing.get_all_start_methods()


@pytest.mark.parametrize(
    ("options", "epochs", "message"),
    [
        ({}, None, "the feed of 'fake' has no len(): it is endless; connect with epochs=1"),
        ({"length_known": False}, 1, "the number of samples of its dataset is unknown until"),
    ],
)
def test_a_feed_without_a_known_end_has_no_len(
    arrays: Any, options: Any, epochs: int | None, message: str
) -> None:
    with connect(FakeTransport(arrays, **options), epochs=epochs) as feed:
        with pytest.raises(TypeError, match=re.escape(message)):
            len(feed)
        assert feed  # without a length too


def test_a_second_loop_continues_until_the_end_was_reported(fake: FakeTransport) -> None:
    with connect(fake, epochs=1) as feed:
        assert len(list(islice(feed, 5))) == 5
        assert len(list(feed)) == 12 - 5
        with pytest.raises(FeedClosedError, match=r"has ended.*Connect again for each pass"):
            list(feed)
        assert next(feed, None) is None


def test_state_after_fewer_steps(fake: FakeTransport) -> None:
    with connect(fake, epochs=1) as feed:
        next(feed), next(feed)
        assert feed.state(1) == {**feed.state(), "position": 4}
        assert feed.state(2) == feed.state()
        with pytest.raises(InvalidRequestError, match="steps must be from 0 to 2, not 3"):
            feed.state(3)


def test_a_batch_is_a_mapping_without_defaults(fake: FakeTransport) -> None:
    with connect(fake) as feed:
        batch = next(feed)
    assert batch.get("images") is None
    assert "images" not in batch
    with pytest.raises(KeyError) as caught:
        batch["images"]
    assert isinstance(caught.value, infeed.FieldNotFoundError)
    assert caught.value.metadata == {"field": "images"}


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_state_after_the_last_batch_is_exact_on_every_rank(arrays: Any, remainder: Any) -> None:
    """50 is not a multiple of the step of three ranks, and no end of data was received yet."""
    ended = threading.Event()

    def block(start: int) -> None:
        if start >= 60:  # after the last step with remainder="pad"
            ended.wait(HANG_SECONDS)

    fake = FakeTransport(
        arrays, batch_size=4, remainder=remainder, length_known=False, before_batch=block
    )
    positions = []
    for rank in range(3):
        with connect(fake, epochs=1, shard=infeed.Shard(rank, 3)) as feed:
            for _ in range(4):
                next(feed)
            positions.append([feed.state()["position"]])
            if remainder == "pad":
                next(feed)
                positions[-1].append(feed.state()["position"])
            ended.set()
            assert list(feed) == []
            positions[-1].append(feed.state()["position"])
        ended.clear()
    assert positions == [[48, 50, 50] if remainder == "pad" else [48, 48]] * 3


def test_finish_none_leaves_the_transforms_to_the_consumer() -> None:
    images = np.arange(256, dtype=np.uint8).reshape(64, 4)
    transforms = [Normalize("image", scale=255.0)]
    transport = FakeTransport({"image": images}, finish_transforms=transforms, shuffle=False)
    with infeed.connect("fake", "fake", finish="none", transport=transport) as feed:
        assert feed.element_spec == transport.spec.wire_spec
        assert feed.pending_transforms == tuple(transforms)
        np.testing.assert_array_equal(next(feed)["image"], images[:8], strict=True)
    with infeed.connect("fake", "fake", transport=transport) as feed:
        assert feed.element_spec == transport.spec.element_spec
        assert feed.pending_transforms == ()
