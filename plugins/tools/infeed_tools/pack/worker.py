"""The handler of a worker process, which loads TensorFlow with the first shard."""

from __future__ import annotations

import atexit
import os
import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from infeed_server.imports import loading_tensorflow


def handle(pickled: bytes) -> Callable[[Any], Any]:
    """Returns a worker's function. Its first call opens the source, so that errors are answers."""
    atexit.register(os._exit, 0)  # there is nothing to clean up, and TensorFlow takes seconds

    @cache
    def opened() -> Callable[[Any], Any]:
        with loading_tensorflow():  # the imports below load it
            plan, destination = pickle.loads(pickled)  # noqa: S301 - infeed's own
            from infeed_tools.pack.reader import open_reader  # noqa: PLC0415
            from infeed_tools.pack.work import pack_shard  # noqa: PLC0415
        return partial(pack_shard, plan, destination, open_reader(plan.location, plan.options))

    return lambda item: opened()(item)  # noqa: PLW0108 - opened by the first call
