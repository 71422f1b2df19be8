"""Formats of data sets: one folder for each, with its source and its part of `infeed init`."""
