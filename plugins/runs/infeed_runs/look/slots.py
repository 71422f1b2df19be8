"""Slots of a step: the samples that a training step contains, from its number alone.

for slot in infeed.at(checkpoint["feed"], 48_123, "localhost:7470", rank=3):
    print(slot.slot, slot.sample_id, slot.file, slot.fields, slot.draws)
"""
# ruff: noqa: RUF009 - `checked_option` returns a field

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from infeed.cursor import MAX_WORLD_SIZE, Cursor
from infeed.http2.tls_config import TLS
from infeed.prefetch.feed_options import CheckedOptions, checked_option, document_options
from infeed.prefetch.served_plan import find_pipeline
from infeed.rpc.channel import open_transport
from infeed.rpc.credentials import Token
from infeed.run import Run
from infeed.shared.arguments import check_flag, check_integer, check_seconds
from infeed.shared.errors import InvalidRequestError, ProtocolError
from infeed.shared.spec import MAX_BATCH_SIZE, PipelineSpec
from infeed.shared.spec.segment import epoch_at, lineage_to_proto
from infeed.transport import Transport
from infeed.v1 import feed_service_pb2 as service

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_SLOTS, MAX_DRAWN_SLOTS = 4096, 256
"""Slots that a server describes in one call, without and with the draws of their samples."""

MAX_EPOCHS = 10_000
"""Epochs that a server searches for a sample in one call."""


@dataclass(frozen=True)
class Slot:
    """One slot of a batch: its sample, and the random draws for it.

    position   position in the run, counted in samples over all ranks
    step       training step, from 0
    rank       rank of the trainer
    slot       index in the rank's batch
    epoch      epoch of the position, from 0
    sample_id  index of the sample in the source, as in `Batch.sample_ids`
    file       file of the sample; empty if it has none
    offset     its offset in the file, in bytes; None for a whole file
    key        two words of the sample's random key, unsigned 64-bit
    fields     small fields of the source by name, such as the label
    draws      parameters drawn by each random transform, by the transform's path
    """

    position: int
    step: int
    rank: int
    slot: int
    epoch: int
    sample_id: int
    file: str = ""
    offset: int | None = None
    key: tuple[int, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    draws: Mapping[str, Any] = field(default_factory=dict)


class _Options(TypedDict, total=False):
    """The options of `at`."""

    rank: int | None
    slot: int | None
    batch_size: int | None
    world_size: int | None
    draws: bool
    timeout: float
    token: Token | None
    tls: TLS | bool | None
    transport: Transport | None


@dataclass(frozen=True, kw_only=True)
class SlotOptions(CheckedOptions):
    """The options of `at`, checked."""

    rank: int | None = checked_option(
        None,
        "the rank whose batch to describe; None: all ranks, in order",
        partial(check_integer, low=0, high=MAX_WORLD_SIZE - 1, or_none="all ranks"),
    )
    slot: int | None = checked_option(
        None,
        "the slot of the batch, from 0; None: all slots",
        partial(check_integer, low=0, high=MAX_BATCH_SIZE - 1, or_none="all slots"),
    )
    batch_size: int | None = checked_option(
        None,
        "slots of each batch of a rank; None: the cursor's, else the pipeline's",
        partial(check_integer, low=1, high=MAX_BATCH_SIZE, or_none="the run's"),
    )
    world_size: int | None = checked_option(
        None,
        "number of ranks; None: the cursor's, else 1",
        partial(check_integer, low=1, high=MAX_WORLD_SIZE, or_none="the run's"),
    )
    draws: bool = checked_option(
        True,
        "whether to return what random transforms drew; the server reads the samples for it",
        check_flag,
    )
    timeout: float = checked_option(
        20.0, "seconds to wait for each answer of a server", check_seconds
    )
    token: Token | None = checked_option(None, "as for `connect`")
    tls: TLS | bool | None = checked_option(None, "as for `connect`")
    transport: Transport | None = checked_option(None, "as for `connect`")


def at(
    cursor: Mapping[str, Any] | Cursor | Run, step: int, target: str, **options: Unpack[_Options]
) -> tuple[Slot, ...]:
    """Returns the slots of a past or future step of a run, rank by rank.

    cursor      result of `Feed.state()` at any step of the run
    step        training step, from 0; in the last segment, not before the run's last change of
                batch size, world size or passes
    target      address, as for `connect`, of a server that serves the step's definition under
                any name
    OPTIONS

    Raises `CursorError` for an invalid cursor, `InvalidRequestError` for a step, rank or slot
    outside the run, `FingerprintError` if no pipeline has the definition of the step, and the
    errors of the connection.
    """
    run = cursor if isinstance(cursor, Run) else Run.of(cursor)
    checked = SlotOptions(**options)
    part = run.up_to(step, check_integer("step", step, 0) + 1)
    transport = open_transport(target, checked.token, checked.tls, checked.transport)
    try:
        return tuple(_describe(transport, part, step, checked))
    finally:
        if checked.transport is None:
            transport.close()


document_options(at, SlotOptions)


def _describe(transport: Transport, run: Run, step: int, options: SlotOptions) -> Iterator[Slot]:
    spec, message = served_run(transport, run, options.timeout)
    size, ranks = _sizes(run, step, spec.batch_size, options)
    part = run.part_of(step, size * ranks)
    begin = part.position(step)
    filled = size * ranks if part.end is None else part.end - begin
    most = MAX_DRAWN_SLOTS if options.draws else MAX_SLOTS
    for first, count in _ranges(size, ranks, options):
        full = max(first, min(first + count, filled))
        for at_once in range(first, full, most):
            request = service.DescribeSlotsRequest(
                run=message,
                start=begin + at_once,
                count=min(most, full - at_once),
                draws=options.draws,
            )
            slots = transport.call("DescribeSlots", request, options.timeout).slots
            if [slot.position - request.start for slot in slots] != [*range(request.count)]:
                raise ProtocolError(
                    f"{transport.target} did not describe the {request.count} positions from "
                    f"{request.start}; use the same version of infeed at both ends"
                )
            for number, slot in enumerate(slots, at_once):
                yield _parse(slot, step, *divmod(number, size))
        for number in range(full, first + count):
            epoch = epoch_at(run.lineage or spec.lineage, begin, spec.sample_count or 1)
            yield Slot(begin + number, step, *divmod(number, size), epoch, sample_id=-1)


def served_run(transport: Transport, run: Run, timeout: float) -> tuple[PipelineSpec, service.Run]:
    """Returns the pipeline with a run's last definition, and the run as requests name it."""
    if run.cursor is None:
        spec = transport.get_pipeline(run.pipeline, timeout)
    else:
        spec = find_pipeline(transport, run.pipeline, run.cursor.fingerprint, timeout)
    lineage = lineage_to_proto(run.lineage) if run.lineage else None
    names = {"pipeline": spec.name, "fingerprint": spec.fingerprint}
    return spec, service.Run(**names, seed=run.seed, lineage=lineage)


def _sizes(run: Run, step: int, batch_size: int, options: SlotOptions) -> tuple[int, int]:
    """Returns the batch size and the number of ranks at a step."""
    stated = run.sizes(step)
    size, ranks = options.batch_size or stated[0], options.world_size or stated[1]
    if (size, ranks) != (found := (stated[0] or size, stated[1] or ranks)):
        raise InvalidRequestError(
            f"step {step} has batches of {found[0]} on {found[1]} ranks according to the cursor, "
            f"not {size} on {ranks}; leave out batch_size and world_size"
        )
    return size or batch_size, ranks or 1


def _ranges(size: int, ranks: int, options: SlotOptions) -> Sequence[tuple[int, int]]:
    """Returns ranges of slots as (first, count), counted over all ranks."""
    rank, slot = options.rank, options.slot
    for name, value, count in (("rank", rank, ranks), ("slot", slot, size)):
        if value is not None and value >= count:
            raise InvalidRequestError(
                f"{name} must be from 0 to {count - 1}, not {value}: the step has {ranks} ranks "
                f"(world_size) of {size} slots (batch_size)"
            )
    if slot is not None:
        return [(r * size + slot, 1) for r in (range(ranks) if rank is None else [rank])]
    return [(0, ranks * size) if rank is None else (rank * size, size)]


def _parse(slot: service.Slot, step: int, rank: int, number: int) -> Slot:
    try:
        fields = json.loads(slot.fields or "{}")
        draws = {draw.transform: json.loads(draw.parameters) for draw in slot.draws}
    except ValueError as error:
        raise ProtocolError(
            f"the server's description of position {slot.position} is not JSON: {error}; use the "
            "same version of infeed at both ends"
        ) from None
    return Slot(
        position=slot.position,
        step=step,
        rank=rank,
        slot=number,
        epoch=slot.epoch,
        sample_id=slot.sample_id,
        file=slot.file,
        offset=slot.offset if slot.HasField("offset") else None,
        key=tuple(word % (1 << 64) for word in slot.key),
        fields=fields,
        draws=draws,
    )
