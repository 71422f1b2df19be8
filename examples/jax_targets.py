"""Small detection or segmentation training in JAX, on boxes or masks that move with pictures.

    infeed init data/coco
    infeed serve pipelines.yaml
    python examples/jax_targets.py 127.0.0.1:7470 coco-train2017 --classes 80

A pipeline with the field `mask` trains a class for each pixel. One with `boxes`, corners in pixels,
trains a grid: a cell predicts the class, size and place of the boxes whose centres it holds.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import infeed

STRIDE = 8
"""Pixels of a cell of the grid."""

CHANNELS = (3, 16, 32, 64)
RATE, MOMENTUM = 0.02, 0.9

Params = dict[str, Any]
Batch = dict[str, jax.Array]


def new_params(outputs: int) -> Params:
    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        return jnp.asarray(scale * random.standard_normal(shape), jnp.float32)

    params = {str(n): weights(3, 3, *CHANNELS[n : n + 2]) for n in range(len(CHANNELS) - 1)}
    return {**params, "last": 0.1 * weights(1, 1, CHANNELS[-1], outputs)}


def network(params: Params, x: jax.Array) -> jax.Array:
    """Returns the outputs of each cell, [slots, rows, columns, outputs]."""
    for name, weights in params.items():
        stride = 1 if name == "last" else 2
        x = jax.lax.conv_general_dilated(
            x, weights, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        if name != "last":
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            x = jax.nn.relu((x - mean) / jnp.sqrt(var + 1e-5))
    return x


def mask_loss(params: Params, batch: Batch) -> jax.Array:
    """Returns the cross-entropy of the pixels; 255 is no class."""
    mask = batch["mask"][..., 0].astype(jnp.int32)
    outputs = network(params, batch["image"])
    full = jax.image.resize(outputs, (*mask.shape, outputs.shape[-1]), "bilinear")
    seen = mask != 255
    logs = jnp.take_along_axis(jax.nn.log_softmax(full), (mask * seen)[..., None], -1)[..., 0]
    return -(logs * seen).sum() / seen.sum()


def box_loss(params: Params, batch: Batch) -> jax.Array:
    """Returns the loss of the classes of all cells, and of the boxes of those that have one. Rows
    beyond the number of boxes have no weight, so shapes never vary."""
    outputs = network(params, batch["image"])
    scores, places = outputs[..., :-4], outputs[..., -4:]
    boxes, rows = batch["boxes"] / STRIDE, jnp.arange(batch["boxes"].shape[1])
    seen = (rows < batch["boxes_count"][:, None]).astype(jnp.float32)
    center, size = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
    limit = jnp.array(outputs.shape[2:0:-1]) - 1
    cell = jnp.minimum(center.astype(jnp.int32), limit)
    slot = jnp.arange(len(boxes))[:, None]
    wanted = jnp.zeros_like(scores).at[slot, cell[..., 1], cell[..., 0], batch["label"]].max(seen)
    found = jnp.maximum(scores, 0) - scores * wanted + jnp.log1p(jnp.exp(-jnp.abs(scores)))
    near = jnp.concatenate([center - cell, jnp.log(jnp.maximum(size, 0.1))], -1)
    off = jnp.abs(places[slot, cell[..., 1], cell[..., 0]] - near).sum(-1)
    return (found.sum() + (off * seen).sum()) / jnp.maximum(seen.sum(), 1)


@jax.jit
def train_step(params: Params, speed: Params, batch: Batch) -> tuple[Params, Params, jax.Array]:
    """Returns parameters and their speed after a step of gradient descent, and the loss."""
    loss_of = mask_loss if "mask" in batch else box_loss
    loss, slopes = jax.value_and_grad(loss_of)(params, batch)
    norm = jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes.values()))
    rate = RATE / jnp.maximum(norm, 1)
    speed = {name: MOMENTUM * speed[name] - rate * slopes[name] for name in params}
    return {name: params[name] + speed[name] for name in params}, speed, loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("pipeline")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    with infeed.connect(options.target, options.pipeline) as feed:
        has_masks = "mask" in {field.name for field in feed.spec.element_spec}
        params = new_params(options.classes + 4 * (not has_masks))
        speed = jax.tree.map(jnp.zeros_like, params)
        for step, batch in zip(range(options.steps), feed, strict=False):
            params, speed, loss = train_step(params, speed, dict(batch))
            print(f"step {step}: loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
