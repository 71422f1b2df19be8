"""Prefetching reader: assigns steps to servers and returns their batches in order."""
