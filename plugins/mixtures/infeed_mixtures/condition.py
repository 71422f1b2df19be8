"""Conditions on the fields of samples, such as `label < 10 and length(caption) > 5`, evaluated for
all samples at once. They have none of Python's names, attributes and calls."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence

from infeed_mixtures.evaluation import Evaluation
from infeed_mixtures.exact import Values, exact
from infeed_mixtures.grammar import fields_of
from infeed_mixtures.rows import Rows, has_rows

_MAX_LENGTH = 10_000
"""Characters of a condition."""


class Condition:
    """A parsed condition. Raises `ValueError` for a text that is not a condition."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise ValueError(
                f"should have at most {_MAX_LENGTH} characters, not {len(text)}; list the ids of "
                "samples to leave out in remove"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # Python only warns of '\d' and 1or
                self._tree = ast.parse(text.strip(), mode="eval").body
            self.fields: tuple[str, ...] = tuple(dict.fromkeys(fields_of(self._tree)))
        except (SyntaxError, RecursionError, MemoryError) as error:
            problem = error.args[0] if error.args else "it is nested too deeply"
            raise ValueError(f"should be a condition such as label < 10: {problem}") from None
        if not self.fields:
            raise ValueError("should be a comparison with a field, such as label < 10")

    def holds(self, values: Mapping[str, Values], classes: Mapping[str, Sequence[str]]) -> Values:
        """Returns whether the condition holds for each sample. Beside a field of numbers, a text is
        the name of a class. Raises `ValueError`."""
        fields = {
            name: Rows.of(field) if has_rows(field) else exact(field)
            for name, field in values.items()
        }
        return Evaluation(fields, classes).truth(self._tree)
