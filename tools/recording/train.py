"""Training of a small network with NumPy, on batches of several servers.

python train.py SERVERS EPOCHS
"""

import sys
import time

import numpy as np

import infeed
from infeed.audit import DeliveryCounter

STEP_SECONDS = 0.06
"""Minimum duration of a step: an accelerator's would not be shorter."""

EVERY = 6
"""Steps from one printed line to the next."""

rng = np.random.default_rng(17)
hidden, output = rng.normal(0, 0.03, (48 * 48, 64)), rng.normal(0, 0.1, (64, 5))


def inputs(images):
    """Returns the distance of each pixel from the image's mean brightness, [image, pixel]."""
    grey = images.mean(axis=3).reshape(len(images), -1)
    return abs(grey - grey.mean(axis=1, keepdims=True)) * 8 - 1


def train_step(images, labels):
    """Moves the weights along the gradient, and returns the loss."""
    x = inputs(images)
    activations = np.maximum(x @ hidden, 0)
    scores = np.exp(activations @ output)
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    loss = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    error = (probabilities - np.eye(5)[labels]) / len(labels)
    back = (error @ output.T) * (activations > 0)
    output[...] -= 0.05 * activations.T @ error
    hidden[...] -= 0.05 * x.T @ back
    return loss


servers, epochs = sys.argv[1], int(sys.argv[2])
with infeed.connect(servers, "train", epochs=epochs, prefetch_batches=4, remainder="pad") as feed:
    counter, losses = DeliveryCounter(feed.spec, epochs), []
    for step, batch in enumerate(feed, 1):
        end = time.monotonic() + STEP_SECONDS
        counter.add(batch)
        losses.append(train_step(batch["image"], batch["label"]))
        time.sleep(max(0.0, end - time.monotonic()))
        if step % EVERY == 0:
            stats, loss = feed.stats(), np.mean(losses[-EVERY:])
            alive = len(stats.servers) - len(stats.lost_servers)
            print(f"step {step:4}   loss {loss:.3f}   servers {alive}", flush=True)
    outcome = counter.outcome()
print(f"trained on {feed.stats().samples} samples in {epochs} epochs")
lost = outcome.undelivered + sum(epoch.lost for epoch in outcome.epochs)
repeated = outcome.redelivered + sum(epoch.surplus for epoch in outcome.epochs)
print(f"audit: {lost} lost, {repeated} repeated")
sys.exit(not outcome.exact)
