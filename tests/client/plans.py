"""Plans of feeds of a fake pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from infeed.cursor import Shard
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.served_plan import plan_feed
from infeed.shared.spec import Guarantee, PipelineSpec
from infeed.testing import FakeTransport

BATCH_BYTES = 32


def fake_spec(*, multi_server: bool = True) -> PipelineSpec:
    """Returns the spec of 50 integers in batches of 4."""
    spec = FakeTransport({"x": np.arange(50)}, batch_size=4).spec
    if multi_server:
        return spec
    return replace(spec, guarantee=Guarantee("deterministic", "exactly_once", "replay"))


def plan_of(spec: PipelineSpec | None = None, **options: Any) -> FeedPlan:
    """Returns a plan of a single trainer, by default with a window of eight batches."""
    defaults = {"shard": Shard(), "prefetch_bytes": 8 * BATCH_BYTES}
    return plan_feed(spec or fake_spec(), FeedOptions(**{**defaults, **options}))
