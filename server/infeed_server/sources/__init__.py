"""Data sources: random access to files, arrays and Python objects."""
