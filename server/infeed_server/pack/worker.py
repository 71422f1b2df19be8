"""The handler of a worker process, which loads TensorFlow with the first shard."""

from __future__ import annotations

import atexit
import os
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

from infeed_server.imports import loading_tensorflow


def handle(pickled: bytes) -> Callable[[Any], Any]:
    """Returns the function of a worker. It opens the source in its first call, so that an error is
    an answer."""
    atexit.register(os._exit, 0)  # nothing is left to end, and TensorFlow's modules take seconds
    opened: list[Callable[[Any], Any]] = []

    def work(item: Any) -> Any:
        if not opened:
            with loading_tensorflow():  # by what follows
                function, plan, destination = pickle.loads(pickled)  # noqa: S301 - of the own process
                from infeed_server.pack.reader import open_reader  # noqa: PLC0415
            reader = open_reader(plan.location, plan.options)
            opened.append(partial(function, plan, destination, reader))
        return opened[0](item)

    return work
