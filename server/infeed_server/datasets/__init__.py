"""Data sets of usual formats, for the `python` source."""
