"""`infeed.at`: the slots of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.client.runs import AmendedFake, amended_run, ids_at

import infeed
from infeed.run import Run
from infeed.shared.errors import CursorError, FingerprintError, InvalidRequestError, ProtocolError
from infeed.v1 import feed_service_pb2 as service

OLD, NEW, CURSOR = amended_run()


def test_a_step_has_the_slots_of_all_ranks() -> None:
    slots = infeed.at(CURSOR.to_json(), 9, "-", transport=OLD)
    places = [(slot.position, slot.step, slot.rank, slot.slot) for slot in slots]
    assert places == [(72 + i, 9, i // 4, i % 4) for i in range(8)]
    assert [slot.sample_id for slot in slots] == ids_at(CURSOR.segments, 72, 8).tolist()
    assert {slot.epoch for slot in slots} == {1}


def test_the_old_definition_is_found_by_its_fingerprint(serve: Any) -> None:
    renamed, new, cursor = amended_run("renamed")
    address = serve(renamed, new).address
    for step, start, count in ((0, 0, 8), (12, 92, 6)):
        slots = infeed.at(cursor, step, address)
        assert [slot.sample_id for slot in slots] == ids_at(cursor.segments, start, count).tolist()


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        ({"rank": 1}, [76, 77, 78, 79]),
        ({"slot": 2}, [74, 78]),
        ({"rank": 1, "slot": 3}, [79]),
        ({"batch_size": 4, "world_size": 2, "rank": 0, "slot": 0}, [72]),
    ],
)
def test_a_rank_or_a_slot(options: Any, positions: list[int]) -> None:
    slots = infeed.at(CURSOR, step=9, target="-", transport=OLD, **options)
    assert [slot.position for slot in slots] == positions
    assert all((slot.rank * 4 + slot.slot) == slot.position - 72 for slot in slots)


def test_a_step_of_a_run_without_segments() -> None:
    fake = AmendedFake({"x": np.arange(50)}, batch_size=4)
    options: Any = {"target": "-", "transport": fake}
    assert [s.position for s in infeed.at(Run("fake"), 3, **options)] == [12, 13, 14, 15]
    state = {"version": 1, "pipeline": "fake", "fingerprint": fake.spec.fingerprint, "seed": 0}
    state |= {"position": 41, "course": {"step": 0, "start": 1, "stride": 4}}
    slots = infeed.at(state, 3, batch_size=2, world_size=2, rank=1, **options)
    assert [slot.position for slot in slots] == [15, 16]
    state |= {"position": 60, "batch_size": 2, "world_size": 3}
    state["course"] = {"step": 0, "start": 0, "stride": 6, "end": 50, "length": 50, "pads": True}
    slots = infeed.at(state, 3, rank=1, **options)
    assert [slot.position for slot in slots] == [20, 21]
    # The last step of a pass has empty slots, and the next pass begins behind it.
    slots = infeed.at(state, 8, **options)
    assert [slot.sample_id < 0 for slot in slots] == [False] * 2 + [True] * 4
    assert [(slot.rank, slot.slot, slot.position) for slot in slots[2:4]] == [
        (1, 0, 50),
        (1, 1, 51),
    ]
    assert infeed.at(state, 9, **options)[0].position == 50
    with pytest.raises(InvalidRequestError, match=r"of 2 on 3 ranks .* not 2 on 2; leave out"):
        infeed.at(state, 3, world_size=2, **options)


def test_what_a_server_describes_is_parsed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    told: dict[str, Any] = {"epoch": 0, "sample_id": 7, "file": "a.tar", "offset": 0}

    def describe(_: str, request: service.DescribeSlotsRequest, timeout: float) -> Any:
        requests.append((request.start, request.count, request.draws, request.run.seed))
        draw = service.Draw(transform="transforms[1].crop", parameters='{"y": 3}')
        values = {**told, "key": (-1, 2), "fields": '{"label": 4}', "draws": [draw]}
        slots = [service.Slot(position=request.start + i, **values) for i in range(request.count)]
        return service.DescribeSlotsResponse(slots=slots)

    fake = AmendedFake({"x": np.arange(9000)}, batch_size=5000)
    monkeypatch.setattr(fake, "call", describe)
    slots = infeed.at(Run("fake", 11), 0, "-", draws=False, transport=fake)
    assert requests == [(0, 4096, False, 11), (4096, 904, False, 11)]
    values = {"fields": {"label": 4}, "draws": {"transforms[1].crop": {"y": 3}}}
    place = {"position": 4999, "step": 0, "rank": 0, "slot": 4999, "key": ((1 << 64) - 1, 2)}
    assert slots[4999] == infeed.Slot(**place, **told, **values)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([], "did not describe the 4 positions from 0"),
        ([service.Slot(position=i + 1) for i in range(4)], "did not describe"),
        ([service.Slot(position=i, fields="{") for i in range(4)], "position 0 is not JSON"),
    ],
)
def test_a_wrong_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, slots: Any, message: str
) -> None:
    fake = AmendedFake({"x": np.arange(50)}, batch_size=4)
    answer = service.DescribeSlotsResponse(slots=slots)
    monkeypatch.setattr(fake, "call", lambda *_: answer)
    with pytest.raises(ProtocolError, match=message):
        infeed.at(Run("fake"), 0, "-", transport=fake)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step": -1}, InvalidRequestError, "step must be"),
        ({"rank": 2}, InvalidRequestError, "rank must be from 0 to 1, not 2"),
        ({"slot": 4}, InvalidRequestError, "slot must be from 0 to 3, not 4"),
        ({"batch_size": 8}, InvalidRequestError, "batches of 4 on 2 ranks.*not 8 on 2"),
        ({"draws": 1}, InvalidRequestError, "draws must be True or False"),
        ({"cursor": {}}, CursorError, "the cursor lacks"),
        ({"transport": NEW}, FingerprintError, "no pipeline has the fingerprint"),
    ],
)
def test_wrong_arguments_are_refused(options: Any, error: Any, message: str) -> None:
    arguments = {"cursor": CURSOR, "step": 9, "target": "-", "transport": OLD, **options}
    with pytest.raises(error, match=message):
        infeed.at(**arguments)
