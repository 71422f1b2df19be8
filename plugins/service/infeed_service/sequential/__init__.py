"""The engine of datasets that are read front to back."""
