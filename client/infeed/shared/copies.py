"""Refusal of copies and pickles, for objects with an open stream."""

from __future__ import annotations

from typing import NoReturn

from infeed.shared.errors import InvalidRequestError


def refuse_copy(original: object) -> NoReturn:
    """Raises `InvalidRequestError`: as the method `__reduce__`, for `copy` and `pickle`."""
    raise InvalidRequestError(
        f"a {type(original).__name__} cannot be copied or pickled: its connection belongs to this "
        "object and process, and copies would each get a part of the batches; make another one "
        "where it is read, and give it this one's state"
    )
