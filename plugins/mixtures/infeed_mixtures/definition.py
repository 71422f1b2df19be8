"""Definition of a mixture: named parts with weights, given as `mix` in place of a source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator
from typing_extensions import Self

from infeed.shared.errors import ConfigError, within
from infeed_mixtures.mixed import Course
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.schedule import integer_weights
from infeed_server.config.model import Definition, Finding, as_tuple, did_you_mean
from infeed_server.pipeline.definition import Pipeline
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, Source
from infeed_server.sources.beside import HasSource
from infeed_server.sources.registry import AnySource, open_sources
from infeed_server.transforms import TransformList
from infeed_server.transforms.targets import Targets

MAX_PARTS = 4096
"""Parts of a mixture. A server lists all of them to each trainer."""


_NUMBER = re.compile(r"-?[0-9]+(/0*[1-9][0-9]*|(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?)")


def _exact(value: Any) -> Any:
    """Returns exactly the number as written: 0.7 is seven tenths."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        raise ValueError("should be a number such as 3, 0.7 or 2/3")
    return Fraction(text)


def _not_negative(value: Fraction) -> Fraction:
    if value < 0:
        raise ValueError("should be 0 or more")
    return value


Weight = Annotated[
    Fraction, BeforeValidator(_exact), AfterValidator(_not_negative), PlainSerializer(str)
]


class MixPart(HasSource):
    """A part of a mixture."""

    source: AnySource | None = None
    """The source of its samples; or give `pipeline`."""
    pipeline: str | Pipeline | None = None
    """Name of a pipeline in the same file, for its source and transforms. Order, batches and bad
    samples are the mixture's."""
    weight: Weight = Field(1, validate_default=True)
    """A number, or a text such as `2/3`. The part's share is exactly its weight divided by the sum
    of all weights."""
    transforms: TransformList = ()
    """With `source`, steps on the part's samples, before the mixture's own transforms."""
    targets: Targets = {}  # noqa: RUF012 - immutable
    """With `source`, the targets that its transforms move with a picture."""
    max_epochs: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of passes over the part's samples; an error names the position where another
    pass would begin."""

    @classmethod
    def other_keys(cls) -> list[str]:
        return [key for key in super().other_keys() if key != MixSource.kind]

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.source is None) == (self.pipeline is None):
            raise ValueError("should have either source or pipeline")
        if self.pipeline is not None and (self.transforms or self.targets):
            raise ValueError("should have transforms or targets in its pipeline, or in the mixture")
        return self

    @property
    def made(self) -> Pipeline:
        """The part as a pipeline."""
        if isinstance(self.pipeline, Pipeline):
            return self.pipeline
        if self.source is None:
            raise ConfigError(
                f"pipeline {self.pipeline!r} is a name, which works only in a YAML file or a "
                "mapping of pipelines; give the pipeline itself"
            )
        return Pipeline(source=self.source, transforms=self.transforms, targets=self.targets)

    def linked(self, pipelines: Mapping[str, Pipeline]) -> MixPart:
        """Returns the part with the pipeline instead of its name. Raises `ConfigError`."""
        if not isinstance(self.pipeline, str):
            return self
        if self.pipeline not in pipelines:
            plain = [name for name, one in pipelines.items() if one.source.kind != MixSource.kind]
            hint = did_you_mean(self.pipeline, plain)
            names = ", ".join(plain) or "none"
            raise ConfigError(
                f"there is no valid pipeline {self.pipeline!r}{hint}; available: {names}",
                at=("pipeline",),
            )
        return self.model_copy(update={"pipeline": pipelines[self.pipeline]})


class MixStage(Definition):
    """Weights that apply from a position on."""

    begin: Annotated[int, Field(ge=1, lt=1 << 62, alias="from")]
    """First position, in samples over all ranks; a multiple of `block`."""
    weights: dict[str, Weight]
    """The weight of each part."""


class MixSource(IndexedDefinition):
    """Samples of several sources or pipelines, by weight."""

    kind: ClassVar[str] = "mix"
    nesting: ClassVar[int] = 1

    mix: Annotated[
        dict[Annotated[str, Field(min_length=1)], MixPart],
        Field(min_length=1, max_length=MAX_PARTS, examples=["{web: {pipeline: a, weight: 3}}"]),
    ]
    """The parts by name. Parts appended at the end do not change the ids of other samples."""
    epoch: Annotated[int, Field(ge=1, lt=1 << 62)] | None = None
    """Number of positions in an epoch; by default the number of samples of all parts."""
    exhausted: Literal["repeat", "stop"] = "repeat"
    """What happens when a part has no samples left: `repeat` delivers them again in another order,
    `stop` ends the epoch for all parts."""
    block: Annotated[int, Field(ge=1, le=1 << 16)] = 1024
    """Positions whose parts are permuted together, so that each rank sees all parts. After each
    block and each epoch, every part has its exact share, to within two samples."""
    stages: Annotated[tuple[MixStage, ...], BeforeValidator(as_tuple)] = ()
    """Weights from later positions on: `[{from: 1024000, weights: {web: 1, books: 2}}]`."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        begin = 0
        for stage in self.stages:
            if stage.weights.keys() != self.mix.keys():
                raise ValueError(f"stages: should have a weight for each of {', '.join(self.mix)}")
            if stage.begin % self.block or stage.begin <= begin:
                near = max(begin + self.block, stage.begin // self.block * self.block)
                raise ValueError(
                    f"stages: {stage.begin} should be a multiple of block, {self.block}, and more "
                    f"than {begin}, for example {near}"
                )
            begin = stage.begin
        for number, weights in enumerate(self._weights):
            try:
                integer_weights(weights)
            except ValueError as error:
                place = f"stages[{number - 1}].weights" if number else "the weights of mix"
                raise ValueError(f"{place}: {error}") from None
        if self.exhausted == "stop" and (self.stages or self.epoch or any(self._most)):
            raise ValueError("exhausted: stop cannot go with stages, epoch or max_epochs")
        return self

    def resolve(self, base: Path) -> Self:
        parts = {}
        for name, part in self.mix.items():
            source = part.source and part.source.resolve(base)
            transforms = tuple(step.resolve(base) for step in part.transforms)
            parts[name] = part.model_copy(update={"source": source, "transforms": transforms})
        return self.model_copy(update={"mix": parts})

    def linked(self, pipelines: Mapping[str, Any]) -> Self:
        parts = {}
        for name, part in self.mix.items():
            with within("source", "mix", name):
                parts[name] = part.linked(pipelines)
        return self.model_copy(update={"mix": parts})

    def check(self) -> Iterator[Finding]:
        for name, part in self.mix.items():
            for path, problem in part.source.check() if part.source else ():
                yield ("mix", name, "source", *path), problem

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> Source:
        opened: list[Source] = []
        with ExitStack() as undo:
            for name, part in self.mix.items():
                with within("mix", name):
                    made = _checked(part.made)
                    sources = (made.source, *made.add)
                    opened.append(open_sources(sources, progress, keep_damaged=keep_damaged))
                undo.callback(opened[-1].close)
                if opened[-1].part_sizes:
                    raise ConfigError(
                        "it is itself a mixture; name its parts instead", at=("mix", name)
                    )
            source = self._join(opened)
            undo.pop_all()
        return source

    def _join(self, opened: Sequence[Source]) -> Source:
        """Joins the parts into one source."""
        from infeed_mixtures.joined import join  # noqa: PLC0415 - it loads TensorFlow

        begins = (0, *(stage.begin for stage in self.stages))
        mixture = Mixture((*self.mix,), begins, self._weights, self.block)
        course = Course(self.epoch, self.exhausted == "stop", self._most)
        return join([part.made for part in self.mix.values()], opened, mixture, course)

    @property
    def _weights(self) -> tuple[tuple[Fraction, ...], ...]:
        """For each stage, the weights of all parts."""
        first = {name: part.weight for name, part in self.mix.items()}
        stages = [first, *(stage.weights for stage in self.stages)]
        return tuple(tuple(weights[name] for name in self.mix) for weights in stages)

    @property
    def _most(self) -> tuple[int | None, ...]:
        return tuple(part.max_epochs for part in self.mix.values())


def _checked(made: Pipeline) -> Pipeline:
    """Returns a part's pipeline. Raises `ConfigError` for options that a part cannot have."""
    for option in ("remove", "skip"):
        if getattr(made, option):
            raise ConfigError(
                f"its pipeline has {option}; give it to the mixture, or name a pipeline without it",
                at=("pipeline",),
            )
    for number, step in enumerate(made.transforms):
        if step.in_source:
            raise ConfigError(
                f"transforms[{number}] is a Python function, which a part cannot have; write it "
                "with TensorFlow operations, or put it first in the transforms of the mixture",
                at=("pipeline",),
            )
    return made
