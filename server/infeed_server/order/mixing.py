"""64-bit mixing: the one source of pseudo-randomness on this side of TensorFlow.

All arithmetic is modulo 2^64 on NumPy arrays, so results are the same on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def words(values: npt.ArrayLike) -> Words:
    """Integers as 64-bit words; negative ones by two's complement."""
    result: Words = np.atleast_1d(np.asarray(values)).astype(np.int64).view(np.uint64)
    return result


def mix(values: Words) -> Words:
    """Each word scrambled by a bijection whose output bits all depend on all input bits.

    The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, OOPSLA 2014).
    """
    z: Words = values + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    z ^= z >> np.uint64(31)
    return z


def combine(*parts: npt.ArrayLike) -> Words:
    """One word from several integers, in which their order counts; parts are broadcast."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = mix(state ^ mix(words(part)))
    return state
