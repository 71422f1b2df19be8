"""The options that other engines add to `infeed serve`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from infeed_server.runtime.engines import added_options


def with_engine_options(serve: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the engines' options, which it gets as `engine_options`."""
    added = added_options()
    signature = inspect.signature(serve, eval_str=True)

    @wraps(serve)
    def command(**values: Any) -> None:
        options = {name: values.pop(name) for name in added}
        serve(**values, engine_options=options)

    parameters = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )
        for name, annotation in added.items()
    }
    parameters = {**signature.parameters, **parameters}
    del parameters["engine_options"]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(parameters.values())
    )
    return command
