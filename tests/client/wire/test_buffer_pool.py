"""Memory is reused, but never while a reference to it is left."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from infeed.wire.buffer_pool import ALIGNMENT, MAX_FREE_BLOCKS, BufferPool

pytestmark = pytest.mark.usefixtures("few_objects")

SIZE = 1 << 20


def address(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65_536, 131_072, 200_000, SIZE, SIZE + 1])
def test_arrays_are_aligned(size: int) -> None:
    pool = BufferPool()
    for _ in range(3):
        array = pool.allocate(size)
        assert (array.dtype, array.shape) == (np.uint8, (size,))
        assert not size or address(array) % ALIGNMENT == 0  # an empty array has any address
        array[:] = 1
        assert array.sum() == size


def test_memory_is_reused() -> None:
    pool = BufferPool()
    array = pool.allocate(SIZE)
    first = address(array)
    del array
    array = pool.allocate(SIZE - 100)  # of a similar size
    assert address(array) == first
    other = pool.allocate(SIZE)
    assert address(other) != first
    del array, other
    assert len({address(array) for array in [pool.allocate(SIZE) for _ in range(2)]}) == 2


VIEWS: dict[str, Any] = {
    "slice": lambda x: x[100:200],
    "slice of a slice": lambda x: x[100:][50:100][::2],
    "type": lambda x: x.view(np.float32),
    "shape": lambda x: x.reshape(2, -1),
    "transposed": lambda x: x.view(np.int64).reshape(2, -1).T[3:],
    "row of floats": lambda x: x.view(np.float32).reshape(16, -1)[3],
    "memoryview": lambda x: x.data,
    "memoryview of a slice": lambda x: x[5:].data[3:],
    "bytes of a cast memoryview": lambda x: memoryview(x).cast("B")[9:],
    "another array of its memory": lambda x: np.frombuffer(x.data, np.uint8)[1:],
    "asarray": np.asarray,
    "subclass": lambda x: x.view(np.recarray),
    "broadcast": lambda x: np.broadcast_to(x[:1], (5, 1)),
    "diagonal": lambda x: x.reshape(1024, 1024).diagonal(),
    "iterator": lambda x: iter(x.reshape(2, -1)),
    "dlpack": np.from_dlpack,
    "interface": lambda x: np.asarray(Interface(x)),
}


class Interface:
    def __init__(self, array: Any) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("kind", sorted(VIEWS))
def test_memory_with_a_view_is_not_reused(kind: str) -> None:
    pool = BufferPool()
    array = pool.allocate(SIZE)
    first = address(array)
    view = VIEWS[kind](array)
    del array
    gc.collect()
    others = [pool.allocate(SIZE) for _ in range(2 * MAX_FREE_BLOCKS)]
    assert first not in [address(other) for other in others]
    del view
    gc.collect()
    assert address(pool.allocate(SIZE)) == first
