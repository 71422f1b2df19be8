"""The engine of sources with random access: any position at any time."""
