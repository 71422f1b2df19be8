"""The tool `infeed pack`: any source as a few large files that are fast to read."""
