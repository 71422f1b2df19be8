"""Definitions of the selections `part`, `where` and `balance` beside a pipeline's source."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import Self

from infeed.shared.errors import ConfigError
from infeed_mixtures.condition import Condition
from infeed_mixtures.definition import MAX_PARTS, Weight
from infeed_mixtures.mixed import Course, MixedSource
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.selected import SelectedSource
from infeed_server.config.model import Definition, as_tuple
from infeed_server.order import MAX_SEED
from infeed_server.order.permutation import permutation
from infeed_server.sources.base import IndexedDefinition, ProgressCallback, Source
from infeed_server.sources.registry import AddedSource, open_source

_PART_DOMAIN = 17
"""Hash domain of the split of a source."""

_BLOCK = 1024
"""Positions within which classes are permuted."""


class _Around(IndexedDefinition):
    """The options for a selection around a source."""

    of: AddedSource
    """The source; `where`, `part` and `balance` beside `source` wrap it."""

    def resolve(self, base: Path) -> Self:
        return self.model_copy(update={"of": self.of.resolve(base)})

    def open(
        self, progress: ProgressCallback | None = None, *, keep_damaged: bool = False
    ) -> Source:
        source = open_source(self.of, progress, keep_damaged=keep_damaged)
        try:
            if source.part_sizes:
                raise ConfigError(
                    "a mixture's samples belong to its parts; give it to each part",
                    at=(self.kind,),
                )
            return self.around(source)
        except BaseException:  # even a signal
            source.close()
            raise

    def around(self, source: Source) -> Source:
        """Returns the selection. Raises `ConfigError`."""
        raise NotImplementedError


def _is_share(bounds: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    if not bounds[0] < bounds[1] <= 1:
        raise ValueError("should be a begin and a larger end from 0 to 1, such as [0, 0.8]")
    return bounds


class Share(Definition):
    """A share of a source."""

    range: Annotated[
        tuple[Weight, Weight],
        BeforeValidator(as_tuple),
        AfterValidator(_is_share),
        Field(examples=["[0, 0.8]"]),
    ]
    """Begin and end, from 0 to 1."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Seed of the split. Shares with the same seed that do not overlap have no sample in common."""


def _with_range(value: Any) -> Any:
    return value if isinstance(value, dict | Share) else {"range": value}


class PartSource(_Around):
    """A share of a source's samples, chosen by a seed."""

    kind: ClassVar[str] = "part"
    nesting: ClassVar[int] = 2

    part: Annotated[Share, BeforeValidator(_with_range)]
    """Begin and end of the share, such as `[0, 0.8]` or `{range: [0, 0.8], seed: 1}`."""

    def around(self, source: Source) -> Source:
        count = len(source)
        begin, end = (floor(bound * count) for bound in self.part.range)
        if begin == end:
            raise ConfigError(f"the share contains none of the {count} samples", at=("part",))
        turned = permutation(count, self.part.seed, _PART_DOMAIN)
        ids = np.sort(turned.forward(np.arange(begin, end)))
        return SelectedSource(source, ids, ["part", self.part.seed, begin, end, count])


def _is_condition(text: str) -> str:
    Condition(text)
    return text


class WhereSource(_Around):
    """The samples of a source that meet a condition."""

    kind: ClassVar[str] = "where"
    nesting: ClassVar[int] = 3

    where: Annotated[str, AfterValidator(_is_condition), Field(examples=["label == 'cat'"])]
    """The condition on the fields of the source, such as `label < 10`."""

    def around(self, source: Source) -> Source:
        from infeed_mixtures.known import field_values  # noqa: PLC0415 - it loads TensorFlow

        condition = Condition(self.where)
        values = {
            name: field_values(source, name, self.kind, with_rows=True) for name in condition.fields
        }
        try:
            holds = condition.holds(values, source.classes)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.where!r} {error}", at=("where",)) from error
        ids = np.flatnonzero(holds)
        if not ids.size:
            raise ConfigError(f"no sample meets {self.where!r}", at=("where",))
        return SelectedSource(source, ids, ["where", self.where])


class Classes(Definition):
    """Classes that are delivered equally often."""

    field: Annotated[str, Field(min_length=1, examples=["label"])]
    """The field of the source that holds the class, as numbers or texts."""


class BalanceSource(_Around):
    """A source whose classes are delivered equally often, as a mixture of the classes."""

    kind: ClassVar[str] = "balance"
    nesting: ClassVar[int] = 4

    balance: Classes
    """The field of the source whose classes are delivered equally often: `{field: label}`."""

    def around(self, source: Source) -> Source:
        from infeed_mixtures.known import field_values  # noqa: PLC0415 - it loads TensorFlow

        field = self.balance.field
        values = field_values(source, field, self.kind)
        found, numbers = np.unique(values, return_inverse=True)
        if len(found) > MAX_PARTS:
            raise ConfigError(
                f"{field!r} has {len(found)} different values; the limit is {MAX_PARTS} classes",
                at=("balance", "field"),
            )
        names = _class_names(source, field, found.tolist())
        selected = SelectedSource(source, np.argsort(numbers, kind="stable"), ["balance", field])
        mixture = Mixture((*names,), (0,), ((Fraction(1),) * len(names),), _BLOCK)
        return MixedSource(selected, np.bincount(numbers).tolist(), mixture, Course())


def _class_names(source: Source, field: str, values: list[Any]) -> dict[str, Any]:
    """Returns the values by class name. Raises `ConfigError` for two values with one name."""
    names = source.classes.get(field, ())
    named: dict[str, Any] = {}
    for value in values:
        is_named = isinstance(value, int) and 0 <= value < len(names)
        text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
        name = names[value] if is_named else f"{field}={text}"
        if name in named:
            raise ConfigError(
                f"{named[name]!r} and {value!r} of {field!r} are both classes named {name!r}; give "
                "one of them another name",
                at=("balance", "field"),
            )
        named[name] = value
    return named
