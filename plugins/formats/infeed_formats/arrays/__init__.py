"""The `arrays` source: NumPy arrays."""
