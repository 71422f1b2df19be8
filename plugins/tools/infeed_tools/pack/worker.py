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
    """Returns the function of a worker. Its first call opens the source: an error is an answer."""
    atexit.register(os._exit, 0)  # nothing is left to end, and TensorFlow's modules take seconds

    @cache
    def opened() -> Callable[[Any], Any]:
        with loading_tensorflow():  # by what follows
            plan, destination = pickle.loads(pickled)  # noqa: S301 - of the own process
            from infeed_tools.pack.reader import open_reader  # noqa: PLC0415
            from infeed_tools.pack.work import pack_shard  # noqa: PLC0415
        return partial(pack_shard, plan, destination, open_reader(plan.location, plan.options))

    return lambda item: opened()(item)  # noqa: PLW0108 - opened by the first call
