"""Storage faults: errors that say nothing about the data, such as EIO, ENOENT or a lack of memory.

They are retried with backoff, and then the batch is refused. Only wrong bytes make a bad sample:
otherwise a file missing for a moment would change one server's data, and its batches would differ
from the others'.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from infeed.shared.errors import InfeedError, SourceError, shorten
from infeed_server.imports import is_tensorflow_loaded

log = logging.getLogger(__name__)

RETRY_DELAYS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each repeated attempt, 3 in total. Longer faults refuse the batch; longer delays
would hold up the batches read after it."""

_PATIENCE_SECONDS = 8.0
"""A read that has taken this long with its attempts is not repeated: the store may not answer at
all."""

_FAULT_CODES = (
    *("AbortedError", "CancelledError", "DeadlineExceededError", "NotFoundError"),
    *("PermissionDeniedError", "ResourceExhaustedError", "UnavailableError"),
)
"""TensorFlow's codes for faults. No decoding or parsing kernel uses them for invalid bytes."""

_NO_THREAD = "can't start new thread"
"""The text of Python's `RuntimeError`."""

_SYSTEM_ERROR = re.compile(
    "|".join(
        [
            r"\[Errno \d+\]",
            re.escape(_NO_THREAD),
            *(f"; {re.escape(os.strerror(code))}" for code in errno.errorcode),
        ]
    )
)
"""Texts of such an error in a Python function, and of a failed system call in a kernel.

TensorFlow gives many of them one code, which kernels also use for invalid bytes and arguments.
"""

Result = TypeVar("Result")


_sleep = time.sleep


def is_storage_fault(error: BaseException) -> bool:
    """Returns whether an error is a fault of storage or resources. An `OSError` without a number is
    not: libraries raise it for files that they cannot decode."""
    if isinstance(error, OSError):
        return error.errno is not None
    if isinstance(error, RuntimeError):
        # Not str(error), which may raise: the class may be the user's.
        return any(isinstance(argument, str) and _NO_THREAD in argument for argument in error.args)
    if isinstance(error, MemoryError):
        return True
    errors = _tensorflow_errors()
    if errors is None or not isinstance(error, errors.OpError):
        return False
    codes = tuple(getattr(errors, code) for code in _FAULT_CODES)
    return isinstance(error, codes) or _SYSTEM_ERROR.search(error.message) is not None


def is_read_fault(error: BaseException) -> bool:
    """Returns whether an error in reading a file is a fault: all are, as nothing is decoded yet."""
    errors = _tensorflow_errors()
    if errors is not None and isinstance(error, errors.OpError):
        return True
    return isinstance(error, (OSError, MemoryError))


def _tensorflow_errors() -> Any:
    """Returns `tf.errors`; None in a process without TensorFlow, where none can occur."""
    return sys.modules["tensorflow"].errors if is_tensorflow_loaded() else None


def error_text(error: BaseException) -> str:
    """Returns the message of the operating system or of TensorFlow, without its prefixes."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(getattr(error, "message", None) or error) or type(error).__name__


def one_line(error: Exception) -> str:
    """Returns an error's message on one line, without what TensorFlow adds to a kernel's."""
    errors = _tensorflow_errors()
    has_message = isinstance(error, InfeedError | errors.OpError) if errors else False
    # As in "{{function_node ...}} Input is empty. [Op:Decode...]".
    text = shorten(error.message if has_message else str(error))  # type: ignore[attr-defined]
    text = text.rpartition("}} ")[2].partition(" [Op:")[0]
    return " ".join(text.split()) or type(error).__name__


def retry_faults(
    operation: Callable[[], Result],
    subject: str,
    is_fault: Callable[[BaseException], bool] = is_read_fault,
) -> Result:
    """Returns the operation's result, repeated after faults. Raises `SourceError`."""
    begin, delays = time.monotonic(), iter(RETRY_DELAYS_SECONDS)
    for attempt in count(1):
        try:
            return operation()
        except Exception as error:
            if not is_fault(error):
                raise
            delay = next(delays, None)
            if delay is None or time.monotonic() - begin > _PATIENCE_SECONDS:
                subject = getattr(error, "filename", None) or subject
                raise SourceError(
                    f"cannot read {subject}: {error_text(error)} ({attempt} attempts), so the "
                    "batch is refused; make it readable to continue",
                    file=subject,
                ) from error
            log.debug("%s: %s; trying again in %s s", subject, error_text(error), delay)
        _sleep(delay)
    raise AssertionError("the number of attempts has no end")
