"""The user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache_dir() -> Path:
    """Returns the folder for files that can be recreated."""
    if own := os.environ.get("INFEED_CACHE_DIR"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "infeed"
