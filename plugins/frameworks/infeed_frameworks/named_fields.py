"""Named fields: sample ids, mask and parts as fields of a batch, and its empty slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.arguments import check_text, did_you_mean
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array, FieldSpec, Spec, part_numbers


@dataclass(frozen=True)
class NamedFields:
    """The names of the fields for sample ids, mask and the number of a slot's part; None: the
    element has no such field."""

    ids: str | None = None
    mask: str | None = None
    part: str | None = None
    fields: Sequence[str] | None = None
    """The fields of the element, in their order; None: all."""

    def __post_init__(self) -> None:
        for option, name in self._added.items():
            check_text(option, name, f'"_{option}"')
        names = [*self._added.values()]
        if len({*names}) < len(names):
            raise InvalidRequestError(f"{' and '.join(self._added)} must differ, not {names!r}")
        if self.fields is None:
            return
        check_names("fields", self.fields, '("image", "label")')
        for option, name in self._added.items():
            if name not in self.fields:
                raise InvalidRequestError(
                    f"{option}={name!r} is not in fields={self.fields!r}; add it there, or leave "
                    f"out {option}"
                )

    @property
    def _added(self) -> dict[str, str]:
        options = {"ids": self.ids, "mask": self.mask, "part": self.part}
        return {option: name for option, name in options.items() if name is not None}

    def spec(self, feed: Feed) -> Spec:
        """Returns the fields of an element of a feed. Raises `InvalidRequestError` if the pipeline
        already has a field of an added name or has no parts, or a name in `fields` is unknown."""
        known = {field.name: field for field in feed.element_spec}
        for option, name in self._added.items():
            if name in known:
                raise InvalidRequestError(
                    f"{option}={name!r} is already a field of the pipeline; its "
                    f"fields: {', '.join(known)}; choose another name"
                )
        if self.part is not None and not feed.spec.parts:
            raise InvalidRequestError(
                f"part={self.part!r}: {feed.spec.name!r} has no parts, because it is not a "
                "mixture; leave out part"
            )
        types = {"ids": "int64", "mask": "bool", "part": "int64"}
        known |= {name: FieldSpec(name, types[option], ()) for option, name in self._added.items()}
        for name in self.fields or ():
            if name not in known:
                raise InvalidRequestError(
                    f"fields: {name!r} is not a field of {feed.spec.name!r}"
                    f"{did_you_mean(name, known)}; its fields: {', '.join(known)}"
                )
        return tuple(known[name] for name in self.fields or known)

    def check(self, feed: Feed, *, is_static: bool = False) -> None:
        """Raises `InvalidRequestError` as `spec` does, and if empty slots would count as samples,
        because nothing marks them and they cannot be cut: shapes are static, or must be the same on
        several ranks."""
        self.spec(feed)
        ranks = feed.shard.world_size
        if feed.may_mask and not self._is_marked(feed) and (is_static or ranks > 1):
            where = f"{ranks} ranks need batches of one shape" if ranks > 1 else "shapes are static"
            raise InvalidRequestError(
                f"batches of {feed.spec.name!r} may have empty slots, which would count as samples "
                f'({where}). Give mask="valid", a field that is False for them, '
                'empty={"label": -100}, a value that loss and metrics ignore, or remainder="drop"'
            )

    def arrays(self, batch: Batch, feed: Feed) -> dict[str, Array]:
        """Returns a feed's batch as a plain dict, with int64 ids and parts, and a bool mask. Empty
        slots are cut, unless the mask or a value of a field marks them."""
        arrays = self.slots(batch, feed.spec.parts)
        if self._is_marked(feed) or batch.mask.all():
            return arrays
        return {name: x[batch.mask] for name, x in arrays.items()}

    def slots(self, batch: Batch, parts: Mapping[str, int]) -> dict[str, Array]:
        """Returns a dict as `arrays` does, but with all slots, for a feed with these parts."""
        arrays: dict[str, Array] = dict(batch)
        if self.ids is not None:
            arrays[self.ids] = batch.sample_ids
        if self.mask is not None:
            arrays[self.mask] = batch.mask
        if self.part is not None:
            arrays[self.part] = part_numbers(parts, batch.sample_ids)
        return arrays if self.fields is None else {name: arrays[name] for name in self.fields}

    def _is_marked(self, feed: Feed) -> bool:
        """Returns whether the consumer can tell empty slots from samples."""
        marked = feed.empty if self.fields is None else {*feed.empty} & {*self.fields}
        return self.mask is not None or bool(marked)


def check_names(option: str, names: Sequence[str], example: str) -> Sequence[str]:
    """Checks and returns a list of names; a single text would be read as a list of letters."""
    if not isinstance(names, list | tuple) or not names:
        raise InvalidRequestError(f"{option} must be field names, such as {example}, not {names!r}")
    for name in names:
        check_text(option, name, example)
    return names
