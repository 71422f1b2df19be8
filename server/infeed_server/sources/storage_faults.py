"""Storage faults: errors that say nothing about the data, such as EIO, ENOENT or a lack of memory.

They are retried with backoff, and then the batch is refused. A bad sample is only what is wrong in
the bytes: otherwise a file that is away for a moment would change the data of one server, and its
batches would differ from those of the others.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from infeed.errors import SourceError
from infeed_server.sources.files import error_text

log = logging.getLogger(__name__)

RETRY_DELAYS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each repeated attempt, 3 in total. Longer faults refuse the batch; longer delays
would hold up the batches that are read after it."""

_FAULT_CODES = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
)
"""TensorFlow's codes of faults. No kernel that decodes or parses has them for invalid bytes."""

_UNKNOWN_FAULT = re.compile(r"\[Errno \d+\]|; Input/output error")
"""Faults that TensorFlow has no code for: an `OSError` inside a Python function, and EIO."""

Result = TypeVar("Result")

_sleep = time.sleep


def is_storage_fault(error: BaseException) -> bool:
    """Returns whether an error of a graph or a user's function is a fault of storage or resources.

    An `OSError` without a number is not: libraries raise it for files that they cannot decode.
    """
    if isinstance(error, OSError):
        return error.errno is not None
    if isinstance(error, tf.errors.UnknownError):
        return bool(_UNKNOWN_FAULT.search(error.message))
    return isinstance(error, (MemoryError, *_FAULT_CODES))


def is_read_fault(error: BaseException) -> bool:
    """Returns whether an error of reading a file is a fault: all are, as nothing is decoded yet."""
    return isinstance(error, (OSError, MemoryError, tf.errors.OpError))


def retry_faults(
    operation: Callable[[], Result],
    subject: str,
    is_fault: Callable[[BaseException], bool] = is_read_fault,
) -> Result:
    """Returns the operation's result, after retries if it fails with a storage fault.

    Raises `SourceError` about `subject` after the last attempt, and other errors unchanged.
    """
    for delay in RETRY_DELAYS_SECONDS:
        try:
            return operation()
        except Exception as error:
            if not is_fault(error):
                raise
            log.debug("%s: %s; trying again in %s s", subject, error_text(error), delay)
        _sleep(delay)
    try:
        return operation()
    except Exception as error:
        if not is_fault(error):
            raise
        attempts = len(RETRY_DELAYS_SECONDS) + 1
        raise SourceError(
            f"cannot read {subject}: {error_text(error)} ({attempts} attempts in "
            f"{sum(RETRY_DELAYS_SECONDS):.0f} s); the batch is refused, because a fault of storage "
            "must not change the data: make it readable and continue",
            file=subject,
        ) from error
