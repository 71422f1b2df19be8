"""Values of each type of numbers, for tests of conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from infeed.shared.spec import numpy_dtype

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "bfloat16"]
NUMBERS = ["bool", *INTS, *FLOATS]

_LIMITS = sorted({limit for name in INTS for limit in (np.iinfo(name).min, np.iinfo(name).max)})


def extreme_values(data_type: str) -> Any:
    """Returns values at, around and far beyond the limits of all integer types, of shape [n].

    Repeated, so that kernels that process several elements at a time treat each value in their
    vectors and, at another place, alone.
    """
    dtype = numpy_dtype(data_type)
    if data_type == "bool":
        values = np.array([False, True])
    elif data_type in INTS:
        own = np.iinfo(dtype)
        near = (limit + step for limit in _LIMITS for step in (-1, 0, 1, 44))
        values = np.array(sorted({x for x in near if own.min <= x <= own.max}), dtype)
    else:
        near = np.outer(np.array(_LIMITS, np.float64), [0.999, 1, 1.001, 3]).ravel()
        odd = [np.nan, np.inf, -np.inf, -0.0, -0.5, 0.5, 0.999, 254.9, 255.5, 300.0, -129.0, 1e300]
        # Next to the middle of two numbers of float16 or bfloat16: a second rounding counts.
        odd += [1 + side * 2.0**-30 + 2.0**-digits for digits in (8, 11) for side in (-1, 1)]
        with np.errstate(all="ignore"):
            values = np.concatenate([near, odd]).astype(dtype)
        # The greatest numbers below the limits.
        values = np.concatenate([values, np.nextafter(values[: near.size], dtype.type(0))])
    return np.tile(values, 3)
