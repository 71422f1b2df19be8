"""Keys beside `source`: those of sources that wrap it, and options that belong inside it."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from infeed_server.config.model import Definition
from infeed_server.sources.registry import source_class, source_classes, source_kinds


class HasSource(Definition):
    """A definition with a `source`, and beside it the keys of sources that wrap it."""

    @model_validator(mode="before")
    @classmethod
    def _nest_sources(cls, value: Any) -> Any:
        """Wraps `source` in the sources whose keys stand beside it. Raises `ValueError`."""
        if not isinstance(value, dict):
            return value
        kinds = [key for key in value if key in source_kinds() and key not in cls.model_fields]
        classes = sorted((source_class(kind) for kind in kinds), key=lambda one: one.nesting)
        nested = dict(value)
        around = [one for one in classes if one.nesting]
        if around and "source" not in value and "of" in around[0].model_fields:
            raise ValueError(f"{around[0].kind}: should be given beside source")
        for one in around:
            inner = {"of": nested["source"]} if "source" in nested else {}
            nested["source"] = {one.kind: nested.pop(one.kind), **inner}
        if around and value.get("add"):
            raise ValueError(f"{', '.join(kinds)}: should be given in each source, not beside add")
        return nested

    @classmethod
    def other_keys(cls) -> list[str]:
        return [one.kind for one in source_classes() if one.nesting]

    @classmethod
    def hint(cls, key: str, known: list[str], value: Any) -> str:
        source = value.get("source")
        kinds = {*value, *(source if isinstance(source, dict) else ())}
        for one in source_classes():
            if one.kind in kinds and key in one.model_fields:
                place = f"source: {{{one.kind}: ..., {key}: ...}}"
                return f"; move it under source, with {one.kind}: {place}"
        return super().hint(key, known, value)
