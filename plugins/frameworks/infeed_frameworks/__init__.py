"""Adapters: a feed's batches in a framework's types, one folder for each framework."""
