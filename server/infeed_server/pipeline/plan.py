"""From a definition to what the engine runs: which transforms where, and what travels."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.errors import ConfigError
from infeed.finish import finished_spec
from infeed.spec import Guarantee, PipelineSpec, Spec
from infeed_server.order import Order
from infeed_server.pipeline import graph
from infeed_server.pipeline.cache import CachedSource, split_at_cache
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.fingerprint import fingerprint
from infeed_server.sources import Source
from infeed_server.transforms import Transform
from infeed_server.transforms.fuse import fuse
from infeed_server.transforms.plan import plan_finish
from infeed_server.version import VERSION


@dataclass(frozen=True)
class IndexedPlan:
    """An indexed pipeline, ready to run.

    `steps` are the host transforms of each sample that `source` reads; `spec.finish_transforms`
    are what is left for the trainer.
    """

    definition: Pipeline
    spec: PipelineSpec
    source: Source
    steps: tuple[graph.Step, ...]

    @property
    def direct(self) -> bool:
        """Whether the source's columns are what travels, so that no graph is needed."""
        return self.source.parsed and not self.steps

    @property
    def whole(self) -> tuple[Source, tuple[graph.Step, ...]]:
        """The same without a cache: where samples are read first, and every step since."""
        if isinstance(self.source, CachedSource):
            return self.source.source, (*self.source.steps, *self.steps)
        return self.source, self.steps

    def order(self, seed: int) -> Order:
        shuffle = self.definition.shuffle
        count = len(self.source)
        return Order(count, seed, shuffle.mode, shuffle.block, shuffle.window)

    def sample_function(self) -> graph.SampleFunction:
        return graph.function(self.source, self.steps)


def plan_indexed(
    name: str, definition: Pipeline, source: Source, *, cached: bool = True
) -> IndexedPlan:
    """Plans a pipeline over an opened source. Raises `ConfigError` and `UserCodeError`.

    Unless `cached`, a `cache` step is left out, which changes no bits.
    """
    if definition.batch is None:
        raise ConfigError("batch: missing; say for example batch: {size: 64}")
    count = len(source)
    if definition.batch.size > count:
        raise ConfigError(
            f"batch.size: {definition.batch.size} is larger than the data set, "
            f"which has {count} samples"
        )
    numbered = list(enumerate(definition.transforms))
    identity = source.identity
    before, steps = split_at_cache(numbered)
    first: tuple[graph.Step, ...] = ()
    if before is not None and cached:
        source = CachedSource(source, before)
    elif before is not None:
        first = before.steps
    stages = graph.trace(source, [*first, *steps])[len(first) :]
    host, finish = plan_finish(steps, stages)
    wire_spec = _wire_spec(source, [*first, *host])
    spec = PipelineSpec(
        name=name,
        element_spec=finished_spec(wire_spec, finish),
        wire_spec=wire_spec,
        finish_transforms=finish,
        sample_count=count,
        fingerprint=_fingerprint(definition, identity),
        guarantee=Guarantee("deterministic", "exactly_once", "constant_time"),
        batch_size=definition.batch.size,
        seed=definition.shuffle.seed,
        remainder=definition.batch.remainder,
        on_error=definition.on_error,
        server_version=VERSION,
    )
    return IndexedPlan(definition, spec, source, (*first, *fuse(host)))


def transform_identities(transforms: tuple[Transform, ...]) -> list[dict[str, object]]:
    """What the fingerprint takes in of the transforms."""
    return [transform.identity() for transform in transforms]


def _wire_spec(source: Source, host: list[graph.Step]) -> Spec:
    return graph.field_specs(graph.trace(source, host)[-1])


def _fingerprint(definition: Pipeline, identity: str) -> str:
    shuffle = definition.shuffle.model_dump(mode="json", exclude={"seed"})
    if definition.shuffle.mode != "window":
        shuffle = {"mode": definition.shuffle.mode}
    return fingerprint(
        source=identity,
        shuffle=shuffle,
        transforms=transform_identities(definition.transforms),
        on_error=definition.on_error,
    )
