"""Mixtures: parts of a data set by exact weights, and selections of a source's samples."""
