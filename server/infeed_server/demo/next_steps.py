"""The commands at the end of the demo: serve a folder, read it in a training loop, look at it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

LOOPS = {
    "jax": """\
import infeed.jax
import jax
from jax import nn, numpy as jnp

def loss(weights, image, label):  # of at most 1000 classes
    x = image.transpose(0, 3, 1, 2)
    for kernel in weights[:-1]:
        x = nn.relu(jax.lax.conv(x, kernel, (2, 2), "SAME"))
    logits = x.max((2, 3)) @ weights[-1]
    accuracy = (logits.argmax(1) == label).mean()
    return -nn.log_softmax(logits)[jnp.arange(len(label)), label].mean(), accuracy

step = jax.jit(jax.value_and_grad(loss, has_aux=True))
shapes = [(32, 3, 5, 5), (64, 32, 3, 3), (64, 64, 3, 3)]
weights = [nn.initializers.he_normal(1, 0)(jax.random.key(0), shape) for shape in shapes]
weights.append(jnp.zeros((64, 1000)))
momentum = jax.tree.map(jnp.zeros_like, weights)
for batch in infeed.jax.connect("127.0.0.1:7470", "photos", epochs=10):
    (value, accuracy), gradient = step(weights, batch["image"], batch["label"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    weights = jax.tree.map(lambda w, m: w - 0.02 * m, weights, momentum)
print(f"loss {value:.3f}, accuracy {accuracy:.3f} in the last batch")
""",
    "torch": """\
import infeed.torch
from torch import nn, optim

first = nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU()
second = nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU()
head = nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()
model = nn.Sequential(*first, *second, *head, nn.Linear(64, 1000))  # at most 1000 classes
optimizer = optim.Adam(model.parameters(), 2e-3)
for batch in infeed.torch.connect("127.0.0.1:7470", "photos", epochs=10):
    logits = model(batch["image"].permute(0, 3, 1, 2))
    loss = nn.functional.cross_entropy(logits, batch["label"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
accuracy = (logits.argmax(1) == batch["label"]).float().mean()
print(f"loss {loss.item():.3f}, accuracy {accuracy:.3f} in the last batch")
""",
    "keras": """\
import infeed.tensorflow
from keras import Sequential, layers, optimizers

relu = {"activation": "relu"}
conv = layers.Conv2D(16, 5, 2, **relu), layers.Conv2D(32, 3, **relu), layers.MaxPooling2D()
head = layers.Conv2D(64, 3, **relu), layers.Flatten(), layers.Dense(64, **relu)
model = Sequential([*conv, *head, layers.Dense(1000, "softmax")])  # at most 1000 classes
model.compile(optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
with infeed.connect("127.0.0.1:7470", "photos") as feed:
    batches, steps = infeed.tensorflow.from_generator(feed), feed.steps_per_epoch
    model.fit(batches, steps_per_epoch=steps, epochs=10, shuffle=False)  # the pipeline shuffles
""",
}
"""Framework → a loop over the pipeline `photos`."""


def commands(folder: Path, pipeline: str) -> str:
    """Returns commands that can be pasted; the loop is of the first framework that is there."""
    path = None if "UV" not in os.environ else ""  # what uvx adds to the PATH ends with the demo
    found = [n for n in ("python", "python3") if shutil.which(n, path=path) == sys.executable]
    python = found[0] if found else shlex.quote(sys.executable)
    own = shutil.which("infeed", path=path) == sys.argv[0]
    infeed = "infeed" if own else f"{python} -m infeed"
    loop = next(LOOPS[name] for name in LOOPS if find_spec(name))
    return f"""
Next, as it is or with a folder of your images in place of {folder}:

{infeed} init {shlex.quote(str(folder))} && {infeed} serve pipelines.yaml

Then in another shell, train on what it serves:

{python} - <<'END'
{loop.replace("photos", pipeline)}END

And look at it in a browser: http://127.0.0.1:7471"""
