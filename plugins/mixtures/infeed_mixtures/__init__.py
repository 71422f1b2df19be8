"""Mixtures: parts of a data set with exact weights, and selections of a source's samples."""
