"""The tool `infeed cache`: the caches of a disk."""
