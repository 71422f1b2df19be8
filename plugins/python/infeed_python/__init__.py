"""The `python` source: any object with `__len__` and `__getitem__`."""
