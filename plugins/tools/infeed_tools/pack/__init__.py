"""The tool `infeed pack`: any source as a few large files, in a form that is fast to read."""
