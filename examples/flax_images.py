"""Trains a small convolutional network on images with Flax: input by Grain, checkpoints by Orbax.

    infeed serve examples/folder_csv_labels.yaml
    python examples/flax_images.py 127.0.0.1:7470 pictures --classes 1000 --checkpoint run

An interrupted run continues when the same command is given again, and ends with the weights of an
uninterrupted one, bit for bit on a CPU. Needs `pip install 'infeed[grain]' flax`, which bring Orbax
and Optax.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

import infeed.grain


class Network(nnx.Module):
    """Classifies images, float32 `[slots, height, width, 3]`; returns `[slots, classes]`."""

    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(3, 8, (5, 5), strides=4, rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.last = nnx.Linear(16, classes, rngs=rngs)

    def __call__(self, image: Any) -> Any:
        x = nnx.relu(self.second(nnx.relu(self.first(image))))
        return self.last(x.mean(axis=(1, 2)))


@nnx.jit
def train_step(network: Network, optimizer: nnx.Optimizer, batch: Any) -> Any:
    """Takes one step of the optimizer; returns the loss before it."""

    def loss_of(network: Network) -> Any:
        logits, label = network(batch["image"]), batch["label"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(network)
    optimizer.update(network, gradients)
    return loss


def train(options: argparse.Namespace) -> Network:
    """Trains up to `options.steps`, from the newest checkpoint if there is one."""
    network = Network(options.classes, nnx.Rngs(0))
    optimizer = nnx.Optimizer(network, optax.adam(1e-3), wrt=nnx.Param)
    dataset = infeed.grain.FeedDataset(options.target, options.pipeline)
    iterator = iter(grain.experimental.device_put(dataset, jax.devices()[0]))
    manager_options = ocp.CheckpointManagerOptions(save_interval_steps=options.save_every)
    with ocp.CheckpointManager(options.checkpoint.resolve(), options=manager_options) as manager:
        state = nnx.state((network, optimizer))
        done = manager.latest_step() or 0
        if done:
            args = ocp.args.Composite(
                train=ocp.args.StandardRestore(nnx.to_pure_dict(state)),
                feed=infeed.grain.CheckpointRestore(iterator),
            )
            nnx.replace_by_pure_dict(state, manager.restore(done, args=args)["train"])
            nnx.update((network, optimizer), state)
            print(f"continues after step {done}", flush=True)
        for step in range(done + 1, options.steps + 1):
            loss = train_step(network, optimizer, next(iterator))
            print(f"step {step}: loss {loss:.4f}", flush=True)
            args = ocp.args.Composite(
                train=ocp.args.StandardSave(nnx.to_pure_dict(nnx.state((network, optimizer)))),
                feed=infeed.grain.CheckpointSave(iterator),
            )
            manager.save(step, args=args)  # in the background, at every save_interval_steps
    iterator.close()
    return network


def digest(network: Network) -> str:
    """Returns a hash of the weights' bits."""
    weights = jax.tree.leaves(nnx.to_pure_dict(nnx.state(network, nnx.Param)))
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in weights)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small network on images.")
    parser.add_argument("target", help="address of the server")
    parser.add_argument("pipeline", help="a pipeline with fields image and label")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint"))
    print("weights", digest(train(parser.parse_args())))


if __name__ == "__main__":
    main()
