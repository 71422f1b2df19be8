"""Questions about the order of a run: their limits and checks, and random places of real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf

import infeed
from infeed.cursor import Cursor
from infeed.shared.errors import (
    FingerprintError,
    InvalidRequestError,
    PermissionDeniedError,
    PipelineNotFoundError,
)
from infeed.shared.spec.segment import Lineage, Segment, lineage_to_proto
from infeed.v1 import feed_service_pb2 as messages
from infeed_runs.answer.methods import describe_slots, find_sample
from infeed_server import Pipeline
from infeed_server.engines.base import Engine
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.lineage import segment_of
from infeed_server.pipeline.load import parse
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.runtime.engine_factory import build
from infeed_server.serving.auth import Caller, Grant
from infeed_server.serving.catalog import Catalog

COUNT, SEED = 1000, 5

ACTIVE = SimpleNamespace(is_active=lambda: True)


def keyed(sample: dict[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
    return {**sample, "drawn": tf.random.stateless_uniform([], key, None, None, tf.int64)}


def definition(**options: Any) -> Pipeline:
    defaults = {
        "source": {"arrays": {"x": np.arange(COUNT)}},
        "shuffle": {"seed": SEED},
        "transforms": [{"map": {"function": keyed}}],
        "batch": {"size": 8},
    }
    return parse({**defaults, **options})


@pytest.fixture(scope="module")
def engine() -> Any:
    engine = build("n", definition(), Monitor())
    yield engine
    engine.close()


def ask(function: Any, engine: Engine, request: Any, is_active: Any = lambda: True) -> Any:
    return function(lambda _: engine, request, is_active)


def run(**options: Any) -> messages.Run:
    return messages.Run(pipeline="n", **options)


@pytest.mark.parametrize(
    ("function", "request_", "problem"),
    [
        (describe_slots, {"start": -1, "count": 1}, "start -1 is out of range"),
        (describe_slots, {"start": (1 << 62) + 1, "count": 1}, "start .* is out of range"),
        (describe_slots, {"count": 0}, "count 0 is out of range; it must be 1 to 4096"),
        (describe_slots, {"count": 4097}, "count 4097 is out of range; it must be 1 to 4096"),
        (describe_slots, {"count": 257, "draws": True}, "count 257 .* it must be 1 to 256"),
        (find_sample, {"sample": "1", "epochs": 0}, "epochs 0 .* it must be 1 to 10000"),
        (find_sample, {"sample": "1", "epochs": 10_001}, "epochs 10001 is out of range"),
        (find_sample, {"sample": "", "epochs": 1}, "length of sample 0 is out of range"),
        (find_sample, {"sample": "1", "epochs": 1, "run": run(seed=-1)}, "seed -1 is out of range"),
    ],
)
def test_numbers_out_of_range_are_refused(
    engine: Engine, function: Any, request_: dict[str, Any], problem: str
) -> None:
    name = {describe_slots: "DescribeSlotsRequest", find_sample: "FindSampleRequest"}[function]
    with pytest.raises(InvalidRequestError, match=problem):
        ask(function, engine, getattr(messages, name)(**{"run": run(), **request_}))


def test_the_largest_request_and_position_are_answered(engine: Engine) -> None:
    request = messages.DescribeSlotsRequest(run=run(), start=1 << 62, count=4096)
    assert len(ask(describe_slots, engine, request).slots) == 4096


def test_another_definition_or_run_is_refused(engine: Engine) -> None:
    request = partial(messages.DescribeSlotsRequest, count=1)
    with pytest.raises(FingerprintError):
        ask(describe_slots, engine, request(run=run(fingerprint="0" * 32)))
    wrong = Segment(0, 0, "n", "0" * 32, SEED, 8, 1, 0, 0, COUNT, COUNT, "global")
    with pytest.raises(InvalidRequestError, match="the run does not fit pipeline 'n'"):
        ask(describe_slots, engine, request(run=run(lineage=lineage_to_proto([wrong]))))


def call(servicer: FeedServicer, method: str, request: Any, caller: Any) -> Any:
    """Calls a method as the interceptor does."""
    details: Any = SimpleNamespace(method=f"/{SERVICE}/{method}")
    return servicer.service(details).unary_unary(request, caller)


def test_tokens_give_access_to_pipelines(engine: Engine) -> None:
    streams: Any = type("Streams", (), {"serve": None})
    servicer = FeedServicer(Catalog({"n": engine, "secret": engine}), streams, "")
    grant = Grant(name="team", sha256="0" * 64, pipelines=["n"])
    caller: Any = SimpleNamespace(caller=Caller("team", lambda: grant), context=ACTIVE)
    request = messages.DescribeSlotsRequest(run=run(), count=1)
    assert call(servicer, "DescribeSlots", request, caller)
    sample = messages.FindSampleRequest(run=run(), sample="1", epochs=1)
    assert call(servicer, "FindSample", sample, caller)
    for pipeline, error in (("secret", PermissionDeniedError), ("other", PermissionDeniedError)):
        request.run.pipeline = sample.run.pipeline = pipeline
        for name, message in (("DescribeSlots", request), ("FindSample", sample)):
            with pytest.raises(error):
                call(servicer, name, message, caller)
    caller.caller = Caller("all")
    request.run.pipeline = "x"
    with pytest.raises(PipelineNotFoundError):
        call(servicer, "DescribeSlots", request, caller)


def lineage(fingerprint: str, engine: Engine) -> Lineage:
    """Returns a run that changes its batch and world size, and skips samples."""
    of = {"pipeline": "n", "fingerprint": fingerprint}
    run, segments = engine.order(SEED), []
    for step, start, skipped, size, ranks in (
        (0, 0, 0, 8, 3),
        (20, 24 * 20, 60, 5, 4),
        (100, 24 * 20 + 20 * 80, 0, 16, 1),
    ):
        run = run.extended(start, run.last, skipped)
        segments.append(segment_of(run, start, step, batch_size=size, world_size=ranks, **of))
    return tuple(segments)


def test_random_places_have_what_was_delivered(serve: Callable[[Any], Any], engine: Engine) -> None:
    """By id, and by a field that is a function of the sample's key."""
    server = serve({"n": definition()})
    rng = np.random.default_rng(0)
    segments = lineage(engine.spec.fingerprint, engine)
    delivered: dict[tuple[int, int, int], tuple[int, ...]] = {}
    ends = [*(segment.step for segment in segments[1:]), 400]
    position: dict[tuple[int, int, int], int] = {}
    for number, (segment, end) in enumerate(zip(segments, ends, strict=True)):
        run_so_far = segments[: number + 1]
        for rank in range(segment.world_size):
            cursor = Cursor("n", segment.fingerprint, SEED, segment.start, segments=run_so_far)
            with infeed.connect(
                str(server.address),
                "n",
                state=cursor.to_json(),
                shard=infeed.Shard(rank, segment.world_size),
                batch_size=segment.batch_size,
            ) as feed:
                for step in range(segment.step, end):
                    batch = next(feed)
                    for slot in range(segment.batch_size):
                        place = (step, rank, slot)
                        position[place] = batch.start + slot
                        values = batch.sample_ids[slot], batch["x"][slot], batch["drawn"][slot]
                        delivered[place] = (*map(int, values),)
    places = [*delivered]
    with grpc.insecure_channel(str(server.address)) as channel:
        describe = channel.unary_unary(f"/{SERVICE}/DescribeSlots")
        message = run(lineage=lineage_to_proto(segments))
        for index in rng.integers(0, len(places), 200).tolist():
            step, rank, slot = place = places[index]
            segment = [one for one in segments if one.step <= step][-1]
            start = segment.start + (step - segment.step) * segment.global_stride
            start += rank * segment.batch_size + slot
            assert position[place] == start
            request = messages.DescribeSlotsRequest(run=message, start=start, count=1, draws=True)
            raw = describe(request.SerializeToString(), timeout=60)
            (found,) = messages.DescribeSlotsResponse.FromString(raw).slots
            key = json.loads(found.draws[-1].parameters)["key"]
            words = np.array([int(key[:16], 16), int(key[16:], 16)], np.uint64).view(np.int64)
            drawn = tf.random.stateless_uniform([], tf.constant(words), None, None, tf.int64)
            assert delivered[place] == (found.sample_id, found.sample_id, int(drawn))
