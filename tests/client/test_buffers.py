"""Memory is lent again, but never while anybody can see it."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.buffers import ALIGNMENT, KEPT, Buffers

SIZE = 1 << 20
pytestmark = pytest.mark.usefixtures("few_objects")


def where(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65_536, 131_072, 200_000, SIZE, SIZE + 1])
def test_any_size_begins_aligned(size: int) -> None:
    buffers = Buffers()
    for _ in range(3):
        array = buffers.take(size)
        assert (array.dtype, array.shape) == (np.uint8, (size,))
        assert not size or where(array) % ALIGNMENT == 0  # NumPy says anything of none
        array[:] = 1
        assert array.sum() == size


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (50, 60, 70)])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float32", "int64"])
def test_arrays_of_any_shape_and_type(shape: tuple[int, ...], dtype: str) -> None:
    array = Buffers().empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert not array.size or where(array) % ALIGNMENT == 0
    array[...] = 1
    assert array.flags.c_contiguous
    assert array.flags.writeable


def test_memory_is_lent_again() -> None:
    buffers = Buffers()
    array = buffers.take(SIZE)
    first = where(array)
    del array
    array = buffers.take(SIZE - 100)  # nearly as large is large enough
    assert where(array) == first
    other = buffers.take(SIZE)
    assert where(other) != first
    del array, other
    assert len({where(array) for array in [buffers.take(SIZE) for _ in range(2)]}) == 2


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
def test_not_while_a_view_is_left(kind: str) -> None:
    buffers = Buffers()
    array = buffers.take(SIZE)
    first = where(array)
    view = VIEWS[kind](array)
    del array
    gc.collect()
    others = [buffers.take(SIZE) for _ in range(2 * KEPT)]
    assert first not in [where(other) for other in others]
    del view
    gc.collect()
    assert where(buffers.take(SIZE)) == first


def test_memory_in_a_cycle_comes_back_with_it() -> None:
    buffers = Buffers()
    array = buffers.take(SIZE)
    first = where(array)
    cycle: list[Any] = [array]
    cycle.append(cycle)
    del array, cycle
    gc.collect()
    assert where(buffers.take(SIZE)) == first


def test_few_blocks_are_kept() -> None:
    buffers = Buffers()
    arrays = [buffers.take(SIZE) for _ in range(KEPT + 5)]
    arrays.clear()
    assert len(buffers._free) == KEPT
    assert not buffers._lent


def test_sizes_that_are_asked_no_more_make_room() -> None:
    buffers = Buffers()
    arrays = [buffers.take(SIZE) for _ in range(KEPT)]
    arrays.clear()
    other = buffers.take(2 * SIZE)
    first = where(other)
    del other
    assert where(buffers.take(2 * SIZE)) == first


def test_a_block_of_another_size_stays() -> None:
    buffers = Buffers()
    array = buffers.take(SIZE)
    first = where(array)
    del array
    other = buffers.take(2 * SIZE)
    assert where(buffers.take(SIZE)) == first
    del other


def test_the_block_used_last_is_lent_first() -> None:
    buffers = Buffers()
    first, second = buffers.take(SIZE), buffers.take(SIZE)
    last = second.ctypes.data
    del first
    del second
    assert buffers.take(SIZE).ctypes.data == last


def test_small_arrays_pass_by() -> None:
    buffers = Buffers()
    buffers.take(1000)
    assert not buffers._lent
    assert not buffers._free


def test_closed() -> None:
    buffers = Buffers()
    kept = buffers.take(SIZE)
    buffers.take(SIZE)
    assert len(buffers._free) == 1
    buffers.close()
    assert not buffers._free
    kept[:] = 7
    again = buffers.take(SIZE)
    again[:] = 8
    assert (kept == 7).all()
    del kept, again
    assert not buffers._free
    assert not buffers._lent


def test_arrays_outlive_their_buffers() -> None:
    array = Buffers().take(SIZE)
    gc.collect()
    array[:] = 7
    assert (array == 7).all()
    del array


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([SIZE, SIZE // 3])), max_size=40))
def test_nothing_that_is_held_is_written_over(steps: list[tuple[int, int]]) -> None:
    buffers = Buffers()
    held: dict[int, tuple[Any, int]] = {}
    for number, (slot, size) in enumerate(steps):
        array = buffers.take(size)
        array[::4096] = number
        held[slot] = (array[4096:], number)  # what was there is dropped
        del array
        assert all((view[::4096] == told % 256).all() for view, told in held.values())


def test_threads() -> None:
    """Taken on one thread, dropped on another, as batches are."""
    buffers = Buffers()
    failed: list[int] = []
    barrier = threading.Barrier(4)

    def check(array: Any, mark: int) -> None:
        if not (array[::4096] == mark).all():
            failed.append(mark)

    def work(mark: int) -> None:
        barrier.wait()
        with ThreadPoolExecutor(1) as other:
            for _ in range(200):
                array = buffers.take(300_000)
                array[::4096] = mark
                other.submit(check, array[:200_000], mark)
                del array

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    gc.collect()
    assert not buffers._lent
    assert len(buffers._free) <= KEPT
