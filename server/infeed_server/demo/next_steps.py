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

def loss(weights, image, label):  # of at most 1000 classes
    x = jax.lax.conv(image.transpose(0, 3, 1, 2), weights[0], (4, 4), "SAME")
    logs = jax.nn.log_softmax(x.max((2, 3)) @ weights[1])
    return -logs[jax.numpy.arange(len(label)), label].mean()

step = jax.jit(jax.value_and_grad(loss))
weights = jax.random.normal(jax.random.key(0), (64, 3, 9, 9)) / 9, jax.numpy.zeros((64, 1000))
for batch in infeed.jax.connect("127.0.0.1:7470", "photos", epochs=10):
    value, gradient = step(weights, batch["image"], batch["label"])
    weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)
print(f"loss {value:.3f}")
""",
    "torch": """\
import infeed.torch
from torch import nn, optim

layers = nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 5, stride=2), nn.ReLU()
head = nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 1000)
model = nn.Sequential(*layers, *head)  # at most 1000 classes
optimizer = optim.Adam(model.parameters())
for batch in infeed.torch.connect("127.0.0.1:7470", "photos", epochs=10):
    logits = model(batch["image"].permute(0, 3, 1, 2))
    loss = nn.functional.cross_entropy(logits, batch["label"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss:.3f}")
""",
    "keras": """\
import infeed.tensorflow
from keras import Sequential, layers

conv = layers.Conv2D(32, 5, 2, activation="relu"), layers.Conv2D(64, 5, 2, activation="relu")
model = Sequential([*conv, layers.GlobalMaxPooling2D()])
model.add(layers.Dense(1000, activation="softmax"))  # at most 1000 classes
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
with infeed.connect("127.0.0.1:7470", "photos") as feed:
    batches = infeed.tensorflow.from_generator(feed, steps_per_epoch=feed.steps_per_epoch)
    model.fit(batches, epochs=10, shuffle=False)  # the pipeline shuffles
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
