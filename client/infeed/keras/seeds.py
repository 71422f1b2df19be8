"""Seeds: the states of random generators, a model's own and PyTorch's, such as dropout's.

Keras does not save them with the weights. On the torch backend, a dropout without a `seed` draws
from PyTorch's global generator, and not from the model's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import Model, Variable, backend, ops


def seeds_of(model: Model) -> dict[str, Any]:
    """Returns the state of each random generator of the model, in the order of its layers, and on
    the torch backend the states of PyTorch's global ones: `cpu`, and `cuda` for its device."""
    states = [ops.convert_to_numpy(state).tolist() for state in _states(model)]
    generators: dict[str, Any] = {}
    if backend.backend() == "torch":
        import torch  # noqa: PLC0415 - for its backend alone

        generators["cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            generators["cuda"] = torch.cuda.get_rng_state()
    encoded = {name: base64.b64encode(x.numpy().tobytes()) for name, x in generators.items()}
    return {"seeds": states, "torch_seeds": {name: x.decode() for name, x in encoded.items()}}


def set_seeds(model: Model, seeds: Mapping[str, Any]) -> None:
    """Restores the model's generators, if as many were saved."""
    states, saved = _states(model), seeds.get("seeds") or []
    if len(saved) == len(states):
        for state, seed in zip(states, saved, strict=True):
            state.assign(np.asarray(seed, state.dtype))


def set_torch_seeds(seeds: Mapping[str, Any]) -> None:
    """Restores PyTorch's generators, on the torch backend."""
    if backend.backend() != "torch":
        return
    import torch  # noqa: PLC0415 - for its backend alone

    for device, text in seeds.get("torch_seeds", {}).items():
        state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        if device == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available():
            torch.cuda.set_rng_state(state)


def _states(model: Any) -> list[Variable]:
    # A layer's variables are its weights, the state of its metrics, and random seeds.
    others = {id(x) for x in (*model.weights, *model.metrics_variables)}
    return [x for x in model.variables if id(x) not in others]
