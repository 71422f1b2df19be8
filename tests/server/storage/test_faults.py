"""Tests of `faults.py`: what counts as a fault, and the retries."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_server.storage.faults import (
    RETRY_DELAYS_SECONDS,
    is_read_fault,
    is_storage_fault,
    retry_faults,
)


def tf_error(kind: type[tf.errors.OpError], message: str = "a.jpg; No such file") -> Exception:
    error: Exception = kind(None, None, message)
    return error


PY_FUNCTION = "FileNotFoundError: [Errno 2] No such file or directory: 'a.jpg'\nTraceback ..."


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EMFILE, "Too many open files"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        PermissionError(errno.EACCES, "Permission denied"),
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        MemoryError(),
        tf_error(tf.errors.CancelledError),
        tf_error(tf.errors.NotFoundError),
        tf_error(tf.errors.PermissionDeniedError),
        tf_error(tf.errors.ResourceExhaustedError),
        tf_error(tf.errors.UnavailableError),
        tf_error(tf.errors.DeadlineExceededError),
        tf_error(tf.errors.AbortedError),
        tf_error(tf.errors.UnknownError, "a.jpg; Input/output error"),
        tf_error(tf.errors.UnknownError, "a.jpg; Structure needs cleaning"),
        tf_error(tf.errors.FailedPreconditionError, "a.jpg; Is a directory"),
        tf_error(tf.errors.FailedPreconditionError, "a.jpg; Transport endpoint is not connected"),
        tf_error(tf.errors.UnknownError, PY_FUNCTION),
        tf_error(tf.errors.UnknownError, "RuntimeError: can't start new thread"),
    ],
    ids=repr,
)
def test_faults_of_storage_and_resources(error: Exception) -> None:
    assert is_storage_fault(error)
    assert is_read_fault(error)


def test_lack_of_threads_is_a_fault() -> None:
    assert is_storage_fault(RuntimeError("can't start new thread"))


@pytest.mark.parametrize(
    "error",
    [
        OSError("cannot identify image file"),
        ValueError("no JSON"),
        KeyError(3),
        RuntimeError("no codec"),
        tf_error(tf.errors.InvalidArgumentError, "Invalid JPEG data"),
        tf_error(tf.errors.DataLossError, "corrupted record"),
        tf_error(tf.errors.OutOfRangeError, "end of file"),
        tf_error(tf.errors.UnknownError, "KeyError: 3"),
        tf_error(tf.errors.FailedPreconditionError, "Table not initialized."),
        tf_error(tf.errors.InvalidArgumentError, "Invalid argument"),
        SampleError("sample 3"),
        SourceError("a.jpg changed"),
    ],
    ids=repr,
)
def test_errors_of_the_bytes_are_no_faults(error: Exception) -> None:
    assert not is_storage_fault(error)


class Operation:
    """An operation that fails `failures` times."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error

    def __call__(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        return "result"


@pytest.mark.parametrize("failures", [0, 1, 6])
def test_operation_is_repeated_with_backoff(failures: int, retry_delays: list[float]) -> None:
    operation = Operation(failures, OSError(errno.EIO, "Input/output error"))
    assert retry_faults(operation, "a.jpg") == "result"
    assert tuple(retry_delays) == RETRY_DELAYS_SECONDS[:failures]


def test_lasting_fault_is_a_source_error(retry_delays: list[float]) -> None:
    operation = Operation(7, OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(SourceError, match=r"cannot read a\.jpg: Too many.*7 attempts") as e:
        retry_faults(operation, "a.jpg")
    assert e.value.metadata == {"file": "a.jpg"}
    assert operation.failures == 0
    assert len(retry_delays) == 6


@pytest.mark.parametrize("failures", [1, 7])
def test_other_error_is_raised_at_once(failures: int, retry_delays: list[float]) -> None:
    error: Any = SourceError("a.jpg changed")
    with pytest.raises(SourceError) as caught:
        retry_faults(Operation(failures, error), "a.jpg")
    assert caught.value is error
    assert retry_delays == []
