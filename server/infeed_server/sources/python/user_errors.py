"""Errors of a user's data set, as errors of infeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infeed.shared.errors import UserCodeError
from infeed_server.config.user_errors import user_traceback
from infeed_server.sources.python.values import UnfitError
from infeed_server.sources.storage_faults import is_storage_fault

ErrorTest = Callable[[BaseException], bool]


@contextmanager
def user_errors(subject: str, passes: ErrorTest = lambda _: False) -> Iterator[None]:
    """Turns what the user's code in the block raises into a `UserCodeError` about `subject`.

    Also what would end the thread or the process, as `sys.exit()` does. Errors that pass the test
    are raised unchanged.
    """
    try:
        yield
    except BaseException as error:
        if passes(error):
            raise
        raise UserCodeError(
            f"{subject} raised {type(error).__name__}:\n{user_traceback(error)}"
        ) from error


def is_unfit_or_fault(error: BaseException) -> bool:
    """Returns whether an error passes where what the user's code returned is converted too."""
    return isinstance(error, UnfitError) or is_storage_fault(error)
