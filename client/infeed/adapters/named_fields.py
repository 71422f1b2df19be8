"""Named fields: sample ids and mask as fields of a batch, for the adapters of frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infeed.batch import Batch
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

    def check(self, fields: Iterable[str]) -> None:
        """Raises `InvalidRequestError` if the pipeline has a field of such a name already."""
        known = list(fields)
        for option, name in vars(self).items():
            if name in known:
                raise InvalidRequestError(
                    f"{option}={name!r} is the name of a field of the pipeline already; its "
                    f"fields: {', '.join(known)}; choose another name"
                )

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Returns an exact dict of the batch's arrays, with int64 ids and bool mask."""
        self.check(batch)
        named = {self.ids: batch.sample_ids, self.mask: batch.mask}
        return {**batch, **{name: x for name, x in named.items() if name is not None}}


NO_FIELDS = NamedFields()
