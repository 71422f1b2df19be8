"""DATA frames: each byte once, in order, without copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infeed_server.http2.protocol import BufferQueue, data_frames


@given(
    st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 60), st.lists(st.integers(1, 90))
)
def test_buffers_are_split_into_frames(
    buffers: list[bytes], max_frame_size: int, counts: list[int]
) -> None:
    data = b"".join(buffers)
    unsent = BufferQueue(buffers)
    assert unsent.size == len(data)
    frames = b""
    for count in [*counts, unsent.size]:
        frames += b"".join(data_frames(5, unsent, min(count, unsent.size), max_frame_size))
    while unsent.size:
        frames += b"".join(data_frames(5, unsent, unsent.size, max_frame_size))
    content = b""
    while frames:
        size, kind = int.from_bytes(frames[:3], "big"), frames[3:9]
        assert 0 < size <= max_frame_size
        assert kind == b"\0\0\0\0\0\5"
        content += frames[9 : 9 + size]
        frames = frames[9 + size :]
    assert content == data


def test_large_frame_refers_to_the_buffer() -> None:
    memory = bytearray(1 << 17)
    header, payload = data_frames(1, BufferQueue([memory]), 1 << 17, (1 << 24) - 1)
    assert header == (1 << 17).to_bytes(3, "big") + b"\0\0\0\0\0\1"
    memory[5] = 7
    assert payload[5] == 7
