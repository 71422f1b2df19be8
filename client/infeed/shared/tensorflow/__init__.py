"""Graph operations that both ends use: finish transforms, and data sets of Python functions."""
