"""The tool `infeed peek`: specs, value ranges and pictures of a batch."""
