"""Adapters: the batches of a feed in the types of a framework, a folder each."""
