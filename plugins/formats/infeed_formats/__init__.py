"""Formats of data sets: a folder each, with its source and its part of `infeed init`."""
