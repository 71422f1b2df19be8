"""A feed over real gRPC: losses, restarts, and a peer that misbehaves."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import grpc
import h2.events
import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, infeed_threads, until

import infeed
from infeed import call as call_module
from infeed import stream as stream_module
from infeed import supplier as supplier_module
from infeed import wire
from infeed.errors import (
    FeedClosedError,
    FingerprintError,
    ProtocolError,
    SampleError,
    ServerUnavailableError,
    StallError,
)
from infeed.spec import Normalize
from infeed.testing import FakeTransport
from infeed.transport import GrpcTransport
from infeed.v1 import stream_pb2


def take(feed: infeed.Feed, steps: int, timeout: float | None = None) -> None:
    for _ in range(steps):
        feed.next(timeout)


def in_order(batches: list[infeed.Batch], fake: FakeTransport, seed: int = 3) -> None:
    """Every batch once, in order, with the right samples."""
    assert [batch.start for batch in batches] == [4 * k for k in range(len(batches))]
    for batch in batches:
        assert batch.sample_ids.tolist() == fake.sample_ids(seed, batch.start, 4).tolist()
        np.testing.assert_array_equal(batch["label"], batch.sample_ids)


def test_an_epoch(serve: Any, fake: FakeTransport) -> None:
    server = serve(fake)
    with infeed.connect(server.address, "fake", epochs=3) as feed:
        batches = list(feed)
        stats = feed.stats()
    assert len(batches) == 37
    in_order(batches, fake)
    assert stats.servers == (server.address,)
    assert (stats.steps, stats.samples, stats.reconnects) == (37, 148, 0)
    assert server.opens[0].fingerprint == fake.spec.fingerprint


def test_a_server_that_restarts_on_its_port(serve: Any, fake: FakeTransport) -> None:
    server = serve(fake)
    batches = []
    with infeed.connect(server.address, "fake", epochs=4, prefetch_bytes=1) as feed:
        for step, batch in enumerate(feed):
            batches.append(batch)
            if step in (10, 20, 40):
                server.stop()
                server.start()
        assert feed.stats().reconnects == 3
    assert len(batches) == 50
    in_order(batches, fake)


def test_the_next_server_of_a_list(serve: Any, fake: FakeTransport) -> None:
    first, second = serve(fake), serve(fake)
    batches = []
    target = f"{first.address},{second.address}"
    with infeed.connect(target, "fake", epochs=3, prefetch_bytes=1) as feed:
        until(lambda: set(feed.stats().servers) == {first.address, second.address})
        for batch in feed:
            batches.append(batch)
            if len(batches) == 10:
                first.stop()
    in_order(batches, fake)
    assert len(batches) == 37


def test_a_server_that_stays_away(serve: Any, fake: FakeTransport) -> None:
    server = serve(fake)
    with infeed.connect(server.address, "fake", prefetch_bytes=1, reconnect_timeout=0.1) as feed:
        next(feed)
        server.stop()
        with pytest.raises(
            ServerUnavailableError, match=rf"{server.address} was lost at position \d+.*0.1 s"
        ):
            take(feed, 10)


def test_a_batch_that_was_taken_is_held_by_nobody(serve: Any, arrays: Any) -> None:
    stuck = threading.Event()
    server = serve(
        FakeTransport(arrays, before_batch=lambda at: at < 32 or stuck.wait(HANG_SECONDS))
    )
    gc.disable()  # which would find what holds itself, some day
    try:
        with infeed.connect(server.address, "fake") as feed:
            left = [weakref.ref(feed.next(HANG_SECONDS)) for _ in range(4)]
            until(lambda: all(ref() is None for ref in left))
            stuck.set()
    finally:
        gc.enable()


def test_stalled_while_the_server_is_away(
    serve: Any, fake: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread that slept through the end of the feed would still be there after `close`.
    monkeypatch.setattr(supplier_module, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(stream_module, "JOIN_SECONDS", HANG_SECONDS)
    server = serve(fake)
    with infeed.connect(server.address, "fake", prefetch_bytes=1) as feed:
        next(feed)
        server.stop()
        until(lambda: "reconnecting after" in feed._stream.awaited()[1])
        with pytest.raises(StallError, match="reconnecting after"):
            take(feed, 10, timeout=0.1)
    assert not infeed_threads()


def test_another_pipeline_after_a_restart(serve: Any, fake: FakeTransport, arrays: Any) -> None:
    server = serve(fake)
    with infeed.connect(server.address, "fake", prefetch_bytes=1) as feed:
        next(feed)
        server.stop()
        server.pipelines["fake"] = FakeTransport({**arrays, "label": arrays["label"] + 1})
        server.start()
        with pytest.raises(FingerprintError, match=fake.spec.fingerprint):
            take(feed, 10)


def test_errors_keep_their_class_and_words(serve: Any, arrays: Any) -> None:
    def fail(start: int) -> None:
        if start == 8:
            raise SampleError("a.jpg is no image", file="a.jpg")

    server = serve(FakeTransport(arrays, batch_size=4, before_batch=fail))
    with infeed.connect(server.address, "fake") as feed:
        assert [next(feed).start, next(feed).start] == [0, 4]
        with pytest.raises(SampleError, match=r"^a\.jpg is no image$") as caught:
            next(feed)
        assert caught.value.metadata == {"file": "a.jpg"}


def test_close_while_the_trainer_waits(
    serve: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "JOIN_SECONDS", HANG_SECONDS)
    gate = threading.Event()
    server = serve(FakeTransport(arrays, before_batch=lambda start: gate.wait(2 * HANG_SECONDS)))
    feed = infeed.connect(server.address, "fake")
    seen: list[BaseException] = []

    def train() -> None:
        try:
            next(feed)
        except FeedClosedError as error:
            seen.append(error)

    trainer = threading.Thread(target=train)
    trainer.start()
    until(lambda: blocked_in(trainer, "wait", "get"))
    until(lambda: feed.stats().servers)
    (reader,) = infeed_threads("infeed-reader")
    until(lambda: blocked_in(reader, "_wait", "receive"))  # for a batch: the stream is open
    feed.close()
    assert not infeed_threads()
    trainer.join(HANG_SECONDS)
    gate.set()
    assert seen


class Spoiled:
    """A fake whose messages pass through a function that spoils them."""

    def __init__(self, fake: FakeTransport, spoil: Any) -> None:
        self.spec = fake.spec
        self._fake = fake
        self._spoil = spoil

    def answer(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Iterator[bytes]:
        for index, message in enumerate(self._fake.answer(requests)):
            yield self._spoil(message) if index == 4 else message


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda message: message[:-1] + bytes((message[-1] ^ 1,)), "does not match its checksum"),
        (lambda message: b"\x7a\x05nonsense", "cannot be parsed"),
        (
            lambda message: b"".join(wire.encode_chunk([b"x" * 999])),
            "999 bytes arrived of a batch of 96",
        ),
    ],
)
def test_damage_on_the_way(serve: Any, fake: FakeTransport, spoil: Any, told: str) -> None:
    server = serve(Spoiled(fake, spoil))
    with infeed.connect(server.address, "fake") as feed:
        assert next(feed).start == 0
        with pytest.raises(ProtocolError, match=rf"{server.address} broke the protocol.*{told}"):
            next(feed)


def test_a_server_that_ends_too_soon(serve: Any, fake: FakeTransport) -> None:
    class Brief(Spoiled):
        def answer(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Iterator[bytes]:
            for index, message in enumerate(super().answer(requests)):
                yield message
                if index == 2:
                    return

    server = serve(Brief(fake, None))
    # Each stream gives one batch: a loss like any other, so the feed goes on.
    with infeed.connect(server.address, "fake", epochs=1) as feed:
        batches = [next(feed) for _ in range(4)]
    in_order(batches, fake)


def test_a_large_batch_for_a_plain_client(serve: Any) -> None:
    """20 MB in one batch, read by generated classes over a channel with default options, which
    takes messages of 4 MB at most."""
    slots, width = 20, 1 << 20
    image = np.zeros((slots, width), np.uint8)
    image[:, 0] = np.arange(slots)
    image[:, -1] = 7
    fake = FakeTransport({"image": image}, batch_size=slots, shuffle=False)
    server = serve(fake)
    requests = [
        stream_pb2.StreamBatchesRequest(open=stream_pb2.StreamOpen(pipeline="fake")),
        stream_pb2.StreamBatchesRequest(batch=stream_pb2.BatchRequest(count=slots)),
    ]
    with grpc.insecure_channel(server.address) as channel:
        method: Any = channel.stream_stream(
            "/infeed.v1.FeedService/StreamBatches",
            stream_pb2.StreamBatchesRequest.SerializeToString,
            stream_pb2.StreamBatchesResponse.FromString,
        )
        opened, head, *chunks = method(iter(requests))
    assert opened.opened.batch_size == slots
    payload = b"".join(message.chunk.data for message in chunks)
    assert len(payload) == head.header.payload_size == slots * width
    assert np.array_equal(np.frombuffer(payload, np.uint8).reshape(slots, width), image)


def test_a_large_batch(serve: Any) -> None:
    image = np.zeros((20, 1 << 20), np.uint8)
    image += np.arange(20, dtype=np.uint8)[:, None]
    server = serve(FakeTransport({"image": image}, batch_size=20, shuffle=False))
    with infeed.connect(server.address, "fake", epochs=2) as feed:
        for batch in feed:
            assert np.array_equal(batch["image"], image)


class ByHand:
    """The fake's pipeline, on a stream to a peer that is driven by hand."""

    def __init__(self, fake: FakeTransport, address: str) -> None:
        self._fake = fake
        self._real = GrpcTransport(address)
        self.target = address

    def list_pipelines(self, timeout: float = 20.0) -> Any:
        return self._fake.list_pipelines()

    def get_pipeline(self, name: str, timeout: float = 20.0) -> Any:
        return self._fake.get_pipeline(name)

    def servers(self) -> tuple[str, ...]:
        return self._real.servers()

    def open_stream(self, *options: Any) -> Any:
        return self._real.open_stream(*options)

    def close(self) -> None:
        self._real.close()


def requests_in(body: bytes) -> list[stream_pb2.StreamBatchesRequest]:
    """Those that have come whole."""
    found = []
    while len(body) >= 5 and len(body) - 5 >= (size := int.from_bytes(body[1:5], "big")):
        found.append(stream_pb2.StreamBatchesRequest.FromString(body[5 : 5 + size]))
        body = body[5 + size :]
    return found


@pytest.mark.parametrize("transforms", [(), (Normalize("image", scale=255.0),)])
def test_a_trainer_that_pauses_keeps_its_connection(
    peer: Any, arrays: Any, transforms: Any
) -> None:
    """Whatever was fetched ahead and not taken, pings of the server are answered."""
    fake = FakeTransport(arrays, batch_size=4, seed=3, finish_transforms=transforms)
    pinged = threading.Event()
    streams: list[int] = []

    def script(talk: Any) -> None:
        streams.append(1)
        talk.greet()
        talk.answer()
        sent = 0

        def answer(count: int) -> None:
            """All requests so far, once there are so many."""
            nonlocal sent
            talk.until(lambda: len(requests_in(talk.body)) >= count)
            messages = list(fake.answer(iter(requests_in(talk.body))))
            for message in messages[sent:]:
                talk.data(b"\0" + len(message).to_bytes(4, "big") + message)
            sent = len(messages)

        answer(1 + 2)  # what opens the stream, and all that may be fetched ahead
        for number in range(1, 6):
            talk.machine.ping(number.to_bytes(8, "big"))
            talk.flush()
            talk.until(lambda n=number: len(talk.seen(h2.events.PingAckReceived)) >= n)
        assert not talk.over
        pinged.set()
        for count in range(4, 1 + 12 + 1):
            answer(count)
        talk.answer([("grpc-status", "0")], end=True)
        talk.until_closed()

    transport = ByHand(fake, peer(script))
    with infeed.connect("-", "fake", epochs=1, prefetch_bytes=1, transport=transport) as feed:
        assert pinged.wait(HANG_SECONDS)
        batches = list(feed)
        assert feed.stats().reconnects == 0
    transport.close()
    in_order(batches, fake)
    assert len(batches) == 12
    assert streams == [1]


def test_a_server_that_takes_no_connection_for_a_while(
    full: str, fake: FakeTransport, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out of a connection is a loss like any other: the feed goes on elsewhere."""
    monkeypatch.setattr(call_module, "CONNECT_SECONDS", 0.1)
    server = serve(fake)
    transport = ByHand(fake, f"{full},{server.address}")
    with infeed.connect("-", "fake", epochs=1, transport=transport) as feed:
        in_order(list(feed), fake)
        assert feed.stats().servers == (server.address,)
    transport.close()


class Found(FakeTransport):
    """Its servers are what the function finds."""

    def __init__(self, arrays: Any, look: Any, **options: Any) -> None:
        super().__init__(arrays, batch_size=4, seed=3, **options)
        self.servers = look  # type: ignore[method-assign]


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked up again and again."""
    monkeypatch.setattr(stream_module, "RESOLVE_SECONDS", 0.0)
    monkeypatch.setattr(stream_module, "_CHECK_SECONDS", 0.001)


def test_a_server_that_is_added_is_found(looks_at_once: None, arrays: Any) -> None:
    names = ["first"]
    transport = Found(arrays, lambda: tuple(names))
    with infeed.connect("-", "fake", transport=transport) as feed:
        next(feed)
        names.append("second")
        until(lambda: feed.stats().servers == ("first", "second"))


def test_names_that_cannot_be_looked_up_for_a_while(looks_at_once: None, arrays: Any) -> None:
    looks: list[int] = []
    failed = threading.Event()

    def look() -> tuple[str, ...]:
        looks.append(1)
        if len(looks) == 2:
            raise ServerUnavailableError("no such name, for now")
        if len(looks) == 3:
            failed.set()
        return ("first",)

    transport = Found(arrays, look, before_batch=lambda start: failed.wait(HANG_SECONDS))
    with infeed.connect("-", "fake", epochs=1, transport=transport) as feed:
        in_order(list(feed), transport)


@pytest.mark.parametrize("error", [ServerUnavailableError("no such name"), ZeroDivisionError()])
def test_names_that_cannot_be_looked_up_at_all(arrays: Any, error: Exception) -> None:
    def fail() -> tuple[str, ...]:
        raise error

    with (
        infeed.connect("-", "fake", transport=Found(arrays, fail)) as feed,
        pytest.raises(type(error)),
    ):
        feed.next(HANG_SECONDS)


def test_a_lost_server_is_missed_while_an_attempt_to_reach_it_takes_for_ever(arrays: Any) -> None:
    """The time to give up is not that of the attempt."""
    given_up = threading.Event()

    class Lost(FakeTransport):
        def open_stream(self, *options: Any) -> Any:
            self.streams += 1
            if self.streams > 1:
                given_up.wait(2 * HANG_SECONDS)
            raise ServerUnavailableError("cut")

    transport = Lost(arrays)
    with infeed.connect("-", "fake", transport=transport, reconnect_timeout=0.1) as feed:
        with pytest.raises(ServerUnavailableError, match=r"was lost at position 0.*cut"):
            feed.next(HANG_SECONDS)
        given_up.set()


HALVED = (Normalize("image", scale=2.0),)


def test_a_finish_transform_that_fails_ends_the_feed(
    arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no room for the floats")

    monkeypatch.setattr(stream_module, "finish", fail)
    transport = FakeTransport(arrays, finish_transforms=HALVED)
    with (
        infeed.connect("-", "fake", transport=transport) as feed,
        pytest.raises(MemoryError, match="no room"),
    ):
        feed.next(HANG_SECONDS)


def test_few_batches_are_finished_ahead(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are many times as large as what travelled, which alone counts as fetched ahead."""
    finished: list[Any] = []
    finish = stream_module.finish

    def counted(*options: Any) -> Any:
        finished.append(1)
        return finish(*options)

    monkeypatch.setattr(stream_module, "finish", counted)
    transport = FakeTransport(arrays, batch_size=4, finish_transforms=HALVED)
    with infeed.connect("-", "fake", transport=transport) as feed:
        (finisher,) = infeed_threads("infeed-finisher")
        until(lambda: blocked_in(finisher, "wait", "put"))
        assert len(finished) == 3  # one of them has no place yet
        assert len(feed._stream._ready._items) == 2


def test_a_feed_that_has_ended_has_no_threads(fake: FakeTransport) -> None:
    with infeed.connect("-", "fake", epochs=1, transport=fake) as feed:
        list(feed)
        until(lambda: not infeed_threads())


def test_what_is_dropped_after_the_end_is_not_kept_for_another_batch() -> None:
    large = FakeTransport({"x": np.zeros((8, 1 << 17), np.uint8)}, batch_size=4)
    feed = infeed.connect("-", "fake", epochs=1, transport=large)
    batch = next(feed)
    feed.close()
    del batch
    gc.collect()
    assert not feed._stream._buffers._lent
    assert not feed._stream._buffers._free


def test_a_forked_process_leaves_the_stream_to_the_one_that_opened_it(fake: FakeTransport) -> None:
    """Both have the same sockets: who cuts them in one cuts them in the other."""
    with infeed.connect("-", "fake", epochs=1, transport=fake) as feed:
        feed._stream._pid += 1  # what a fork would change
        feed._stream.stop()
        feed._stream._pid -= 1
        in_order(list(feed), fake)
        assert feed.stats().reconnects == 0
