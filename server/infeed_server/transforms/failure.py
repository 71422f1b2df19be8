"""The user's own part of a traceback."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

_TENSORFLOW = str(Path(tf.__file__).parent)
_SERVER = str(Path(__file__).parents[1])


def user_traceback(error: BaseException) -> str:
    """`Traceback (most recent call last): ...` from the first line that is the user's.

    Frames of TensorFlow and of infeed are left out. AutoGraph runs a rewritten copy of the user's
    code; the lines told are those of the original.
    """
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is not None:
        frames = _original(metadata.translated_stack)
        last = [metadata.cause_message + "\n"]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        last = traceback.format_exception_only(error)
    own = [frame for frame in frames if not frame.filename.startswith((_TENSORFLOW, _SERVER))]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own), *last]
    return "".join(lines).rstrip()


def _original(stack: Sequence[Any]) -> list[traceback.FrameSummary]:
    # AutoGraph lists the innermost frame first.
    return [
        traceback.FrameSummary(frame.filename, frame.lineno, frame.function_name, line=frame.code)
        for frame in reversed(stack)
    ]
