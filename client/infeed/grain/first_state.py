"""State at the beginning of a feed, from the pipeline's spec alone.

Grain's prefetching iterators take the state when they are made, before a restore can set another
one. Were the feed connected for it, each rank of a job that resumes would have the servers make
batches of the beginning, to drop them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infeed.arguments import check_seconds, check_text
from infeed.cursor import Cursor
from infeed.prefetch.feed_options import FeedOptions
from infeed.rpc.channel import open_transport

if TYPE_CHECKING:
    from infeed.client import ConnectOptions

_TIMEOUT_SECONDS = 20.0
"""That of `infeed.connect`: how long a server may take to start."""


def first_state(target: str, pipeline: str, options: ConnectOptions) -> dict[str, Any]:
    """Returns the cursor of position 0 of the feed that `infeed.connect` opens with these options.

    Opens no stream. Raises as `infeed.connect` does for what it needs: server, pipeline and seed.
    """
    seed = FeedOptions(seed=options.get("seed")).seed
    check_text("pipeline", pipeline)
    timeout = check_seconds("timeout", options.get("timeout", _TIMEOUT_SECONDS))
    transport = options.get("transport")
    channel = open_transport(target, options.get("token"), options.get("tls"), transport)
    try:
        spec = channel.get_pipeline(pipeline, timeout)
    finally:
        if transport is None:
            channel.close()
    return Cursor(spec.name, spec.fingerprint, spec.seed if seed is None else seed, 0).to_json()
