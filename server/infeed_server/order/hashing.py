"""64-bit hashing: the only source of pseudo-randomness outside TensorFlow.

All arithmetic is modulo 2^64 on NumPy arrays, so results are the same on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def to_words(values: npt.ArrayLike) -> Words:
    """Converts integers to 64-bit words; negative integers by two's complement."""
    result: Words = np.atleast_1d(np.asarray(values)).astype(np.int64).view(np.uint64)
    return result


def mix(values: Words) -> Words:
    """Hashes each word by a bijection whose output bits all depend on all input bits. The finalizer
    of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
    2014)."""
    z: Words = values + GOLDEN_GAMMA
    z = (z ^ (z >> np.uint64(30))) * MULTIPLIER_1
    z = (z ^ (z >> np.uint64(27))) * MULTIPLIER_2
    z ^= z >> np.uint64(31)
    return z


def combine(*parts: npt.ArrayLike) -> Words:
    """Hashes several integers, whose order counts, into one word. Broadcasts arrays."""
    state = np.zeros(1, np.uint64)
    for part in parts:
        state = mix(state ^ mix(to_words(part)))
    return state
