"""The engine for datasets that are read front to back."""
