"""Commands that need no server installed. Imported by `infeed.cli` only: needs the extra `cli`."""
