"""Keras adapters: batches for `fit`, and a callback with the cursor."""
