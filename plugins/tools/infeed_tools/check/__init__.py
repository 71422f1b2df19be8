"""Checks of definitions: their files without TensorFlow, and their data sample by sample."""
