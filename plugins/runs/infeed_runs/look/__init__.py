"""Inspection of runs from a trainer's host: `infeed.at`, `infeed what`, `when` and `replay`."""
