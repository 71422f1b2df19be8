"""The tool `infeed cache`: a list of the caches on disk, their deletion and verification."""
