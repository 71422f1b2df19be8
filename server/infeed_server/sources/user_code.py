"""What a user's own function raised, told as its author wants to read it."""

from __future__ import annotations

import traceback
from pathlib import Path

import tensorflow as tf

from infeed.errors import UserCodeError

_OURS = str(Path(__file__).parents[1])
_TENSORFLOW = str(Path(tf.__file__).parent)


def raised(what: str, error: Exception) -> UserCodeError:
    """`what` raised `error`: the message ends in the traceback, the user's own frames only."""
    return UserCodeError(f"{what} raised {type(error).__name__}:\n{user_traceback(error)}")


def user_traceback(error: Exception) -> str:
    """A traceback without the frames of infeed, TensorFlow and the import machinery."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, _TENSORFLOW, "<frozen importlib"))
        and not frame.filename.endswith("importlib/__init__.py")
    ]
    head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*head, *traceback.format_exception_only(error)]).rstrip()
