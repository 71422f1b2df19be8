# %% [markdown]
"""
# Does the training wait for its input?

This notebook trains in JAX on images that a server decodes and reduces. `feed.stats()` tells
whether the loop waits for its input, which part of the input is the cause, and what to change. One
changed line of the pipeline then changes the verdict. It takes a minute, and needs no GPU.
"""

# %%
# !pip install -q 'infeed[server,jax]'

# %% [markdown]
# ## Data that is costly to decode
#
# 128 photos of noise, 1024 pixels wide, in two classes: dark and bright.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(17)
for number in range(128):
    name = ("bright", "dark")[number % 2]
    coarse = rng.integers(0, 128, (64, 64, 3), np.uint8) + (128 if name == "bright" else 0)
    file = folder / "photos" / name / f"{number:03}.jpg"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse.astype(np.uint8)).resize((1024, 1024)).save(file)

# %% [markdown]
# ## Two pipelines
#
# Both reduce each photo to 64 pixels. `cached` keeps the reduced photos in memory, so that no photo
# is decoded from the second epoch on. The random flip comes after the cache, so it differs in each
# epoch.

# %%
PHOTOS = """
    source: {images: photos, labels: folders}
    shuffle: {seed: 17}
    transforms:
      - decode_image: {field: image, channels: 3}
      - resize: {field: image, size: [64, 64]}
      # - cache
      - random_flip_left_right: {field: image}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 32}
"""
CACHED = PHOTOS.replace("# - cache", "- cache")
(folder / "pipelines.yaml").write_text(f"pipelines:\n  decoded:{PHOTOS}\n  cached:{CACHED}")
command = [sys.executable, "-m", "infeed", "serve", "pipelines.yaml"]
command += ["--listen", "127.0.0.1:0", "--http", "off"]
with (folder / "server.log").open("w") as log:
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
assert server.stdout is not None
line = server.stdout.readline()  # serving on 127.0.0.1:PORT (http off)
assert line, (folder / "server.log").read_text()
address = line.split()[2]

# %% [markdown]
# ## A training
#
# A linear classifier. `infeed.jax.connect` yields arrays on the device, and meanwhile transfers the
# next batches.

# %%
import time

import jax
import jax.numpy as jnp

import infeed.jax


@jax.jit
def train_step(
    weights: jax.Array, image: jax.Array, label: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the weights after a step of gradient descent, and the loss before it."""

    def loss_of(weights: jax.Array) -> jax.Array:
        logits = (image.reshape(len(image), -1) - 0.5) @ weights
        return jnp.logaddexp(0, jnp.where(label == 1, -logits, logits)).mean()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 1e-3 * gradient, loss


def train(pipeline: str, seconds: float) -> infeed.Stats:
    """Trains for some seconds; returns the statistics of the feed."""
    weights = jnp.zeros(64 * 64 * 3)
    with infeed.jax.connect(address, pipeline) as batches:
        end = time.monotonic() + seconds
        for step, batch in enumerate(batches):
            weights, loss = train_step(weights, batch["image"], batch["label"])
            loss.block_until_ready()
            time.sleep(0.01)  # a larger model
            if step % 50 == 0:
                print(f"step {step}: loss {loss:.4f}")
            if time.monotonic() > end:
                break
        return batches.stats()


# %% [markdown]
# ## The verdict
#
# The loop needs 10 ms for a step, and a batch takes longer to decode. The verdict covers the last
# ten seconds: it names the cause, and how many such servers would be enough.

# %%
decoded = train("decoded", seconds=12)
print(decoded)

# %% [markdown]
# The same training on `cached`. On a machine with two cores, the last line was
#
# ```text
# waited 73% of the time, and with a cache 5%
# ```

# %%
cached = train("cached", seconds=12)
print(cached)
print(f"waited {decoded.wait_share:.0%} of the time, and with a cache {cached.wait_share:.0%}")

# %%
server.terminate()
server.wait()
