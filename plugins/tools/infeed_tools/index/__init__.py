"""The tool `infeed index`: record indices, built before a server needs them."""
