"""Trains a small convnet in plain JAX on images that infeed serves, and resumes where it stopped.

    infeed serve examples/folder_csv_labels_augmented.yaml
    python examples/jax_images.py 127.0.0.1:7470 pictures --steps 100 --checkpoint run.pickle

The checkpoint has parameters and cursor together. A run that is killed and started again ends with
the parameters of one that was not, bit for bit on a CPU. On several hosts, start it on each with
`--coordinator HOST:PORT --processes N --process I`, and a checkpoint on a shared file system.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import infeed

CLASSES = 1000
LEARNING_RATE = 0.05
CHANNELS = (3, 8, 16)


def new_params() -> dict[str, Any]:
    """Returns parameters that are the same in every run."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        return (scale * random.standard_normal(shape)).astype(np.float32)

    params = {f"conv{n}": weights(3, 3, *CHANNELS[n : n + 2]) for n in range(len(CHANNELS) - 1)}
    return {**params, "dense": weights(CHANNELS[-1], CLASSES)}


def loss_of(params: dict[str, Any], image: jax.Array, label: jax.Array) -> jax.Array:
    """Returns the mean cross-entropy of images, float32 [slots, height, width, 3]."""
    x = image
    for n in range(len(CHANNELS) - 1):
        dimensions = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, params[f"conv{n}"], (4, 4), "SAME", dimension_numbers=dimensions
        )
        x = jax.nn.relu(x)
    logits = x.mean((1, 2)) @ params["dense"]
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, label[:, None], axis=1).mean()


@jax.jit
def train_step(params: dict[str, Any], image: jax.Array, label: jax.Array) -> Any:
    """Returns the parameters after a step of gradient descent, and the loss."""
    loss, gradients = jax.value_and_grad(loss_of)(params, image, label)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradients), loss


def save(file: Path, params: dict[str, Any], step: int, cursor: dict[str, Any]) -> None:
    """Writes a complete checkpoint or none."""
    new = file.with_suffix(".new")
    content = {"params": jax.tree.map(np.asarray, params), "step": step, "feed": cursor}
    new.write_bytes(pickle.dumps(content))
    new.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("pipeline")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--global-batch-size", type=int, default=8)
    parser.add_argument("--checkpoint", type=Path, default=Path("run.pickle"))
    parser.add_argument("--coordinator")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    options = parser.parse_args()
    if options.coordinator:
        jax.distributed.initialize(options.coordinator, options.processes, options.process)

    params, step, cursor = new_params(), 0, None
    if options.checkpoint.exists():
        saved = pickle.loads(options.checkpoint.read_bytes())  # noqa: S301 - a file of its own
        params, step, cursor = saved["params"], saved["step"], saved["feed"]
        print(f"resumes after step {step}", flush=True)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    params = jax.tree.map(
        lambda x: jax.make_array_from_process_local_data(
            NamedSharding(mesh, PartitionSpec()), x, x.shape
        ),
        params,
    )
    with infeed.jax.connect(
        options.target,
        options.pipeline,
        sharding=(mesh, PartitionSpec("data")),
        global_batch_size=options.global_batch_size,
        state=cursor,
    ) as batches:
        for number, batch in zip(range(step + 1, options.steps + 1), batches, strict=False):
            params, loss = train_step(params, batch["image"], batch["label"])
            print(f"step {number}: loss {float(loss):.4f}", flush=True)
            if jax.process_index() == 0:
                save(options.checkpoint, params, number, batches.state())
    digest = hashlib.sha256(b"".join(np.asarray(params[name]).tobytes() for name in sorted(params)))
    print(f"parameters {digest.hexdigest()}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
