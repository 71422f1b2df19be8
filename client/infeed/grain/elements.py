"""Elements of a Grain dataset: batches as exact dicts, with sample ids and mask as fields."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.arguments import check_text
from infeed.batch import Batch
from infeed.errors import InvalidRequestError
from infeed.spec import Array


@dataclass(frozen=True)
class NamedFields:
    """The names of the fields for sample ids and mask; None: the element has no such field.

    Raises `InvalidRequestError` if a name is no text, or both are equal.
    """

    ids: str | None = None
    mask: str | None = None

    def __post_init__(self) -> None:
        for option in ("ids", "mask"):
            if (name := getattr(self, option)) is not None:
                check_text(option, name, f'"_{option}"')
        if self.ids is not None and self.ids == self.mask:
            raise InvalidRequestError(f"ids and mask must be two names, not {self.ids!r} for both")

    def element(self, batch: Batch) -> dict[str, Array]:
        """Returns a new dict of the batch's arrays, `[slots, ...]` each.

        Sample ids are int64 and the mask is bool, `[slots]` each. JAX takes a subclass of dict,
        such as a batch, for a leaf. Raises `InvalidRequestError` if a name is a field's already.
        """
        element = dict(batch)
        if self.ids is not None:
            self._add(element, "ids", self.ids, batch.sample_ids)
        if self.mask is not None:
            self._add(element, "mask", self.mask, batch.mask)
        return element

    def _add(self, element: dict[str, Array], option: str, name: str, array: Array) -> None:
        if name in element:
            raise InvalidRequestError(
                f"{option}={name!r} is the name of a field of the pipeline already; its fields: "
                f"{', '.join(element)}; choose another name"
            )
        element[name] = array
