"""DATA frames: every byte once, in order, and none of it copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infeed_server.http2 import frames


@given(
    st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 60), st.lists(st.integers(1, 90))
)
def test_pieces_are_cut_into_frames(
    pieces: list[bytes], frame_bytes: int, counts: list[int]
) -> None:
    whole = b"".join(pieces)
    rest = frames.Pieces(pieces)
    assert rest.size == len(whole)
    wire = b""
    for count in [*counts, rest.size]:
        wire += b"".join(frames.data(5, rest, min(count, rest.size), frame_bytes))
    while rest.size:
        wire += b"".join(frames.data(5, rest, rest.size, frame_bytes))
    content = b""
    while wire:
        size, kind = int.from_bytes(wire[:3], "big"), wire[3:9]
        assert 0 < size <= frame_bytes
        assert kind == b"\0\0\0\0\0\5"
        content += wire[9 : 9 + size]
        wire = wire[9 + size :]
    assert content == whole


def test_large_frames_and_no_copy() -> None:
    memory = bytearray(1 << 17)
    pieces = list(frames.data(1, frames.Pieces([memory]), 1 << 17, (1 << 24) - 1))
    assert pieces[0] == (1 << 17).to_bytes(3, "big") + b"\0\0\0\0\0\1"
    memory[5] = 7
    assert pieces[1][5] == 7
