"""The limit on reading up to a position."""

from __future__ import annotations

import pytest

from infeed.shared.errors import CursorError
from infeed_server.engines.sequential.progress import MAX_SEEK_SECONDS, SeekGuard


def test_position_that_is_more_than_a_day_away_is_refused_after_a_minute() -> None:
    guard = SeekGuard("rows", 10**15)
    guard.on_block(100, 500.0)  # the first block fills buffers
    for number in range(1, 6):
        guard.on_block(100 + 1000 * number, 10.0)
    with pytest.raises(CursorError) as raised:
        guard.on_block(6100, 10.0)
    assert str(raised.value) == (
        "position 1000000000000000 of 'rows' is too far away: reading up to it, at 100 positions a "
        "second, would take 115740741 days, more than 1 day; the cursor belongs to other data, or "
        "start without it"
    )


def test_position_within_a_day_is_read_up_to() -> None:
    near = SeekGuard("rows", int(100 * MAX_SEEK_SECONDS))
    for number in range(100):
        near.on_block(100 + 1000 * number, 10.0)
    reached = SeekGuard("rows", 150)
    for position in (100, 200):
        reached.on_block(position, 1000.0)
