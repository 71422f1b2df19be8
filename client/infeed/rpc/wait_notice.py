"""Notice of a wait for a server, in the log: what is waited for, and the last error."""

from __future__ import annotations

import logging
import threading

log = logging.getLogger(__name__)

NOTICE_SECONDS = 2.0
"""Wait after which the notice is logged: longer than a call to a server that serves."""


class WaitNotice:
    """Logs a warning once, if its block takes long: on a thread, as the block may wait itself."""

    def __init__(self, target: str) -> None:
        self.problem = "no answer yet"
        """The last error, to be set by the block."""
        self._target = target
        self._timer = threading.Timer(NOTICE_SECONDS, self._log)
        self._timer.daemon = True

    def __enter__(self) -> WaitNotice:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _log(self) -> None:
        log.warning(
            "waiting for an infeed server at %s, for %g s so far: %s",
            *(self._target, NOTICE_SECONDS, self.problem),
        )
