# %% [markdown]
"""
# A server and a trainer in one runtime

This notebook draws images, serves them from a process of its own, trains on them, loses the server
in the middle of an epoch, and resumes: each image of the epoch is delivered once. It takes half a
minute, and needs no GPU. On real hardware the server runs on other hosts; nothing else changes.
"""

# %%
# !pip install -q 'infeed[server]'

# %% [markdown]
# ## Data
#
# 640 small JPEGs in a folder for each class: vertical stripes and horizontal stripes.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(17)
for number in range(640):
    name = ("horizontal", "vertical")[number % 2]
    wave = np.sin(np.arange(64) * rng.uniform(0.3, 0.9) + rng.uniform(0, 6))
    pixels = 128 + 40 * np.tile(wave, (64, 1)) + rng.normal(0, 40, (64, 64))
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    file = folder / "stripes" / name / f"{number:03}.jpg"
    file.parent.mkdir(parents=True, exist_ok=True)
    (image if name == "vertical" else image.rotate(90)).save(file)

# %% [markdown]
# ## A server
#
# A file describes what is served. `infeed init` writes one for data that it finds; this one is
# short enough to write by hand: files, order, the steps on each image, and the batch size.

# %%
DEFINITION = """
pipelines:
  stripes:
    source: {images: stripes, labels: folders}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 1}
      - resize: {field: image, size: [64, 64]}
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 32}
"""
(folder / "pipelines.yaml").write_text(DEFINITION)


def serve() -> tuple[subprocess.Popen[str], str]:
    """Starts a server on a free port; returns its process and its address."""
    command = [sys.executable, "-m", "infeed", "serve", "pipelines.yaml"]
    options = ["--listen", "127.0.0.1:0", "--http", "off"]
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command + options, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    line = process.stdout.readline()  # serving on 127.0.0.1:PORT (http off)
    assert line, (folder / "server.log").read_text()
    return process, line.split()[2]


server, address = serve()
print("a server at", address)

# %% [markdown]
# ## A batch
#
# A batch is a dict of NumPy arrays. The values are from 0 to 1, but travelled as uint8: a quarter
# of the bytes.

# %%
import infeed

with infeed.connect(address, "stripes") as feed:
    batch = next(feed)
for field, values in batch.items():
    print(f"{field}: {values.dtype}{list(values.shape)}, from {values.min()} to {values.max()}")
print("labels", batch["label"][:8], "of samples", batch.sample_ids[:8])
Image.fromarray((np.hstack(list(batch["image"][:8, ..., 0])) * 255).astype(np.uint8))

# %% [markdown]
# ## Ten steps
#
# A logistic regression on two figures of an image: how much neighbours differ within a row, and
# within a column. `feed.state()` is the cursor after the last batch that the loop has received: a
# few numbers, which belong in the model's checkpoint.


# %%
def train_step(weights: np.ndarray, batch: infeed.Batch) -> tuple[np.ndarray, float]:
    """Returns the weights after a step of gradient descent, and the loss before it."""
    image, label = batch["image"][..., 0], batch["label"]
    x = np.stack([abs(np.diff(image, axis=axis)).mean((1, 2)) for axis in (1, 2)], 1) * 10
    chance = 1 / (1 + np.exp(-(x - x.mean(0)) @ weights))
    loss = -np.log(np.where(label == 1, chance, 1 - chance)).mean()
    return weights - 30 * (x - x.mean(0)).T @ (chance - label) / len(label), float(loss)


weights, seen = np.zeros(2), []
with infeed.connect(address, "stripes", epochs=1) as feed:
    for batch in feed:
        weights, loss = train_step(weights, batch)
        seen.append(batch.sample_ids)
        print(f"step {len(seen)} of {feed.steps}: loss {loss:.3f}")
        if len(seen) == 10:
            break
    cursor = feed.state()
print(cursor)

# %% [markdown]
# ## The server is lost
#
# It is killed, and another one starts: here, or on any host with the same files. The feed of the
# second half connects with the cursor. It gets the next batches, in the order in which the first
# server would have sent them.

# %%
server.kill()
server.wait()
server, address = serve()
print("another server at", address)

with infeed.connect(address, "stripes", epochs=1, state=cursor) as feed:
    for batch in feed:
        weights, loss = train_step(weights, batch)
        seen.append(batch.sample_ids)
        print(f"step {len(seen)}: loss {loss:.3f}")

# %% [markdown]
# ## Nothing was lost
#
# The 20 steps had each of the 640 images once, in the order of an epoch without an interruption.

# %%
ids = np.concatenate(seen)
print("delivered:", len(ids), "images, different ones:", len(np.unique(ids)))
assert sorted(ids) == list(range(640))

with infeed.connect(address, "stripes", epochs=1) as feed:
    undisturbed = np.concatenate([batch.sample_ids for batch in feed])
print("in the order of an undisturbed epoch:", np.array_equal(ids, undisturbed))
assert np.array_equal(ids, undisturbed)

# %%
server.terminate()
server.wait()
