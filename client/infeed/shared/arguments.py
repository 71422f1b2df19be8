"""Checks of arguments: a wrong type or value is an `InvalidRequestError` that lists valid ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from infeed.shared.errors import InvalidRequestError

MAX_INT64 = (1 << 63) - 1

MAX_SECONDS = 1e8
"""Three years: the largest number of seconds that gRPC's timeout header can hold."""


def check_integer(
    name: str, value: Any, low: int, high: int = MAX_INT64, *, or_none: str = ""
) -> int:
    """Returns any integer but a bool, such as NumPy's, as an int. `or_none` is what None means, if
    the caller accepts it."""
    largest = "2^63 - 1" if high == MAX_INT64 else str(high)
    valid = f"from {low} to {largest}" + (f", or None for {or_none}" if or_none else "")
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise _wrong_type(name, f"an integer {valid}", value)
    if not low <= number <= high:
        raise InvalidRequestError(f"{name} must be {valid}, not {number}", **{name: number})
    return number


def check_seconds(name: str, value: Any, *, endless: bool = False) -> float:
    """Returns a number of seconds as a float. With `endless` it may be infinite."""
    valid = f"a number of seconds from 0 to {MAX_SECONDS:.0f}" + (", or math.inf" * endless)
    if isinstance(value, bool | str | bytes):
        raise _wrong_type(name, valid, value)
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong_type(name, valid, value) from None
    if not (0 <= seconds <= MAX_SECONDS or (endless and seconds == math.inf)):
        raise InvalidRequestError(f"{name} must be {valid}, not {value!r}", **{name: value})
    return seconds


def check_text(name: str, value: Any, example: str = "") -> str:
    """Returns a string that is not empty."""
    valid = "a nonempty str" + (f", such as {example}" if example else "")
    if not isinstance(value, str):
        raise _wrong_type(name, valid, value)
    if not value:
        raise InvalidRequestError(f"{name} must be {valid}")
    return value


def check_flag(name: str, value: Any, *, or_none: str = "") -> bool:
    """Returns True or False; refuses 0, 1 and strings."""
    if not isinstance(value, bool):
        valid = "True or False" + (f", or None for {or_none}" if or_none else "")
        raise _wrong_type(name, valid, value)
    return value


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns the value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise InvalidRequestError(f"{name} must be {listed}, not {value!r}")
    return value


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns a hint naming the most similar known name; empty if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    similar = get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def refuse_copy(original: object) -> NoReturn:
    """Raises `InvalidRequestError`; serves as `__reduce__`, against `copy` and `pickle`."""
    raise InvalidRequestError(
        f"a {type(original).__name__} cannot be copied or pickled: its connection belongs to "
        "this process; open another one where it is read, with this one's state"
    )


def _wrong_type(name: str, valid: str, value: Any) -> InvalidRequestError:
    shown = repr(value)[:80]
    kind = "" if value is None else f" ({type(value).__name__})"
    return InvalidRequestError(f"{name} must be {valid}, not {shown}{kind}", **{name: shown})
