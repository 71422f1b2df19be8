"""The plan of an indexed pipeline: where each transform runs, and the spec of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from infeed.shared.errors import ConfigError, within
from infeed.shared.finish import finished_spec
from infeed.shared.spec import FinishTransform, Guarantee, MixPairs, PipelineSpec, Spec
from infeed.shared.spec.segment import Lineage
from infeed_server.order import RunOrder, SampleOrder
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.draws import name_draws
from infeed_server.pipeline.fingerprint import fingerprint, kernel_selection
from infeed_server.pipeline.followed_classes import followed_classes
from infeed_server.pipeline.lineage import MAX_STABLE, removed_ids, run_order, skip_lineage
from infeed_server.pipeline.moved_targets import targets_identity, with_targets
from infeed_server.pipeline.native_pictures import NativePictures
from infeed_server.pipeline.picture_steps import (
    choose_chain,
    fuse_decode_and_crop,
    gather_pictures,
)
from infeed_server.pipeline.removal import removed_samples
from infeed_server.pipeline.sample_cache import CachedSource, take_cache
from infeed_server.pipeline.shown_targets import (
    refuse_left_targets,
    refuse_mixed_classes,
    refuse_other_exif,
    refuse_other_targets,
    target_specs,
)
from infeed_server.pipeline.torn_pictures import refuse_torn_pictures
from infeed_server.sources.base import Columns, Source
from infeed_server.sources.places import Indices, Keys
from infeed_server.transforms.base import Step, Transform
from infeed_server.transforms.finish_placement import plan_finish
from infeed_server.version import VERSION


@dataclass(frozen=True)
class IndexedPlan:
    """An indexed pipeline, ready to run. `steps` are the transforms that the server runs in a graph
    on each sample that `source` reads; `spec.finish_transforms` run at the trainer. Functions in
    Python belong to the source."""

    definition: Pipeline
    spec: PipelineSpec
    source: Source
    steps: tuple[Step, ...]
    own_order: SampleOrder
    """The order of the definition's epochs, under its own seed."""
    removed: tuple[int, ...] = ()
    """The samples that the definition removes, in its order."""
    pictures: NativePictures | str = ""
    """The native decoder's part of the steps, or the reason why TensorFlow decodes; empty if no
    picture is decoded."""

    @property
    def epoch_length(self) -> int:
        """The positions of an epoch."""
        return self.own_order.length

    @property
    def native(self) -> NativePictures | None:
        """The native decoder's part of the steps, unless it has none or a cache keeps its
        results."""
        is_kept = self.cache is not None and self.cache.pictures is not None
        return None if is_kept or isinstance(self.pictures, str) else self.pictures

    @property
    def is_passthrough(self) -> bool:
        """Whether the source's columns are sent unchanged, so that no graph is needed."""
        return self.source.parsed and not self.steps

    @property
    def cache(self) -> CachedSource | None:
        """The source, if it is a cache."""
        return self.source if isinstance(self.source, CachedSource) else None

    @property
    def uncached(self) -> tuple[Source, tuple[Step, ...]]:
        """The source that a cache reads, or the source itself, and all steps from there."""
        if self.cache is None:
            return self.source, self.steps
        return self.cache.source, (*self.cache.steps, *self.steps)

    def read(self, indices: Indices, keys: Keys) -> Columns:
        """Reads the columns of these samples, under these keys."""
        return self.source.read_keyed(indices, keys)

    def order(self, seed: int, lineage: Lineage = ()) -> RunOrder:
        """Returns the order of a run. Raises `InvalidRequestError` for another run's segments."""
        order = replace(self.own_order, seed=seed)
        if not lineage and self.definition.skip:
            lineage = tuple(replace(segment, seed=seed) for segment in self.spec.lineage)
        if not lineage:
            return RunOrder.of(order)
        return run_order(self.spec, order, self.removed, lineage)

    def sample_function(self) -> sample_graph.SampleFunction:
        return sample_graph.sample_function(self.source, self.steps)


def plan_indexed(
    name: str,
    definition: Pipeline,
    source: Source,
    *,
    cached: bool = True,
    decoder: str = "tensorflow",
) -> IndexedPlan:
    """Plans a pipeline over an opened source. Raises `ConfigError` and `UserCodeError`. Unless
    `cached`, it omits a `cache` step, which changes no bits. `decoder` is a server's option.
    Closing the plan's source closes `source`."""
    if definition.batch is None:
        raise ConfigError("missing; add for example batch: {size: 64}", at=("batch",))
    removed = removed_samples(definition.remove, source)
    order = sample_order(definition, source, removed)
    own = definition_fingerprint(definition, source, removed)
    definition.batch.check(order.length)
    parts = source.part_sizes
    before = len(source.transforms)
    transforms = name_draws((*source.transforms, *definition.transforms))
    definition = definition.model_copy(update={"transforms": transforms[before:]})
    steps, cache = take_cache(transforms, -before)
    check_placement(transforms, -before)
    maps, in_graph = split_maps(steps)
    in_graph = tuple(with_targets(in_graph, definition.targets))
    with ExitStack() as undo:
        if maps:
            source = maps[0][1].map_source(source, maps, definition.source)
            undo.callback(source.close)
        placed = _Placed.of(source, in_graph)
        spec = replace(_spec(name, definition, order, placed, own), parts=parts)
        shown = source.shown, placed.origins, spec.element_spec
        spec = replace(spec, targets=target_specs(definition.targets, *shown))
        if removed or definition.skip:
            names = {"pipeline": name, "fingerprint": own}
            lineage = skip_lineage(order, definition.skip, spec.batch_size, **names)
            spec = replace(spec, lineage=lineage)
        split = cache.split(placed.host) if cache else ((), placed.host)
        gathered = [gather_pictures(part) for part in split]
        first, rest = (tuple(fuse_decode_and_crop(part)) for part in gathered)
        kept = choose_chain(gathered[0], decoder)
        chain = kept or choose_chain(gathered[1], decoder)
        plan = IndexedPlan(definition, spec, source, (*first, *rest), order, removed)
        pictures: NativePictures | str | None = None
        if cache is not None and cached:
            made = CachedSource(source, first, cache, name, in_graph=bool(rest), chain=kept)
            plan, pictures = replace(plan, source=made, steps=rest), made.pictures
        elif kept and not isinstance(chain, str):
            chain = replace(chain, rest=(*chain.rest, *rest))
        if pictures is None:
            pictures = chain if isinstance(chain, str) else NativePictures(chain, plan.source)
        plan = replace(plan, pictures=pictures)
        undo.pop_all()
    return plan


@dataclass(frozen=True)
class _Placed:
    """The steps that stay on the server, those that move to the trainer, the fields sent, their
    class names, and their fields of the source."""

    host: list[Step]
    finish: tuple[FinishTransform, ...]
    wire_spec: Spec
    classes: Mapping[str, tuple[str, ...]]
    origins: Mapping[str, str]

    @classmethod
    def of(cls, source: Source, steps: Sequence[Step]) -> _Placed:
        refuse_mixed_classes(source.shown, steps)
        stages, origins = sample_graph.trace(source, steps)
        refuse_other_targets(source.shown, steps, stages, origins)
        refuse_other_exif(source, steps, origins)
        refuse_left_targets(source.shown, steps, stages, origins)
        refuse_torn_pictures(source, steps, stages)
        host, finish = plan_finish(steps, stages)
        if host == list(steps[: len(host)]):
            sent = stages[len(host)]
        else:
            sent = sample_graph.trace(source, host).stages[-1]
        classes = followed_classes(source, origins[-1], finish)
        return cls(host, finish, sample_graph.field_specs(sent), classes, origins[-1])


def _spec(
    name: str, definition: Pipeline, order: SampleOrder, placed: _Placed, fingerprint: str
) -> PipelineSpec:
    assert definition.batch is not None
    if definition.batch.size % 2 and any(isinstance(t, MixPairs) for t in placed.finish):
        problem = f"{definition.batch.size} is odd, and mix_pairs mixes neighbouring slots"
        raise ConfigError(f"{problem}; use an even size", at=("batch", "size"))
    return PipelineSpec(
        name=name,
        element_spec=finished_spec(placed.wire_spec, placed.finish),
        wire_spec=placed.wire_spec,
        finish_transforms=placed.finish,
        sample_count=order.length,
        fingerprint=fingerprint,
        guarantee=Guarantee("deterministic", "exactly_once", "constant_time"),
        batch_size=definition.batch.size,
        seed=definition.shuffle.seed,
        remainder=definition.batch.remainder,
        on_error=definition.on_error,
        server_version=VERSION,
        source_kind=definition.source.kind,
        shuffle_mode=order.mode,
        classes=placed.classes,
    )


def sample_order(definition: Pipeline, source: Source, removed: tuple[int, ...]) -> SampleOrder:
    """Returns the order of a pipeline's epochs. Raises `ConfigError` for one that is too large."""
    shuffle, mode, count = definition.shuffle, definition.shuffle.order_mode, len(source)
    if mode == "stable" and count > MAX_STABLE:
        raise ConfigError(
            f"stable takes 16 bytes of memory per sample, and the data set has {count} samples, "
            f"more than {MAX_STABLE}; leave it out",
            at=("shuffle", "order"),
        )
    shrinks = definition.remove is not None and definition.remove.then == "shrink"
    gone = removed_ids(removed, shrinks)
    plain = SampleOrder(count, shuffle.seed, mode, shuffle.block, shuffle.window, gone)
    return source.order(plain)


def definition_fingerprint(definition: Pipeline, source: Source, removed: tuple[int, ...]) -> str:
    """Returns the fingerprint of a definition, its source and removed samples."""
    shuffle: dict[str, Any] = {"mode": definition.shuffle.order_mode}
    if definition.shuffle.mode == "window":
        shuffle = definition.shuffle.model_dump(mode="json", exclude={"seed", "order"})
    then = definition.remove.then if removed and definition.remove else None
    size = definition.batch.size if definition.skip and definition.batch else None
    steps, _ = take_cache(name_draws(definition.transforms))
    has_other_code = any(step.has_other_code for _, step in steps)
    return fingerprint(
        source=source.identity,
        shuffle=shuffle,
        transforms=[_identity(step) for step in steps],
        on_error=definition.on_error,
        kernels=kernel_selection() if has_other_code else None,
        remove=[removed, then],
        skip=[definition.skip, size],
        **({"targets": targets_identity(definition.targets)} if definition.targets else {}),
        **({} if source.arrangement is None else {"arrangement": source.arrangement}),
    )


def _identity(step: Step) -> dict[str, Any]:
    ordinal, transform = step
    with within("transforms", ordinal):
        return transform.identity()


def split_maps(steps: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Returns the first steps, which run where samples are read, and the others."""
    count = next((n for n, (_, step) in enumerate(steps) if not step.in_source), len(steps))
    return tuple(steps[:count]), tuple(steps[count:])


def check_placement(transforms: Sequence[Transform], first: int = 0) -> None:
    """Raises `ConfigError` for a function in Python that follows a transform in a graph."""
    before: Transform | None = None
    for number, transform in enumerate(transforms, first):
        if not transform.in_source:
            before = before or transform
        elif before is not None:
            raise ConfigError(
                "a function in Python must precede all other transforms, but it follows "
                f"{before.name}; move it to the front, or write it with TensorFlow operations and "
                f"leave out {transform.in_source}",
                at=("transforms", number, transform.name, transform.in_source),
            )
