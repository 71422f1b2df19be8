"""Seeds: the states of a model's random generators, such as dropout's.

Keras does not save them with the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import Model, Variable, ops

_NAME = "seed_generator_state"


def seeds_of(model: Model) -> list[list[int]]:
    """Returns the state of each random generator of the model, in the order of its layers."""
    return [ops.convert_to_numpy(each).tolist() for each in _states(model)]


def set_seeds(model: Model, seeds: Sequence[Sequence[int]] | None) -> None:
    """Restores what `seeds_of` has returned. Does nothing if it is None, as in an older checkpoint,
    or of another number of generators."""
    states = _states(model)
    if seeds is None or len(seeds) != len(states):
        return
    for state, seed in zip(states, seeds, strict=True):
        state.assign(np.asarray(seed, state.dtype))


def _states(model: Any) -> list[Variable]:
    return [each for each in model.variables if each.path.rpartition("/")[2] == _NAME]
