"""Formats of data sets: a folder for each, with its source and its part of `infeed init`."""
