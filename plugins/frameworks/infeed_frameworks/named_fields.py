"""Named fields: sample ids and mask as fields of a batch, and its empty slots, for the adapters."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.arguments import check_text
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array


@dataclass(frozen=True)
class NamedFields:
    """The names of the fields for sample ids and mask; None: the element has no such field."""

    ids: str | None = None
    mask: str | None = None

    def __post_init__(self) -> None:
        for option, name in vars(self).items():
            if name is not None:
                check_text(option, name, f'"_{option}"')
        if self.ids is not None and self.ids == self.mask:
            raise InvalidRequestError(f"ids and mask must be two names, not {self.ids!r} for both")

    def check(self, feed: Feed, *, is_static: bool = False) -> None:
        """Raises `InvalidRequestError` if a feed has a field of such a name already, and if empty
        slots would count as samples: nothing marks them, and they cannot be cut, since shapes are
        static, or the same on several ranks."""
        known = [field.name for field in feed.element_spec]
        for option, name in vars(self).items():
            if name in known:
                raise InvalidRequestError(
                    f"{option}={name!r} is the name of a field of the pipeline already; its "
                    f"fields: {', '.join(known)}; choose another name"
                )
        ranks = feed.shard.world_size
        if feed.may_mask and not self._is_marked(feed) and (is_static or ranks > 1):
            where = f"{ranks} ranks need batches of one shape" if ranks > 1 else "shapes are static"
            raise InvalidRequestError(
                f"batches of {feed.spec.name!r} may have empty slots, which would count as samples "
                f'({where}): give mask="valid", a field that is False for them, or '
                'empty={"label": -100}, a value that loss and metrics ignore; or remainder="drop"'
            )

    def arrays(self, batch: Batch, feed: Feed) -> dict[str, Array]:
        """Returns an exact dict of a feed's batch, with int64 ids and bool mask. Empty slots are
        cut, unless the mask or a value of a field marks them."""
        named = {self.ids: batch.sample_ids, self.mask: batch.mask}
        arrays = {**batch, **{name: x for name, x in named.items() if name is not None}}
        if self._is_marked(feed) or batch.mask.all():
            return arrays
        return {name: x[batch.mask] for name, x in arrays.items()}

    def _is_marked(self, feed: Feed) -> bool:
        """Returns whether the consumer can tell empty slots from samples."""
        return self.mask is not None or bool(feed.empty)
