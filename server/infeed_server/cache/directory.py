"""Directories of the disk cache: one per fingerprint below a root, each deleted as a whole.

A process locks the directory that it uses, so that no other process deletes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.cache.disk import DiskStore, locked
from infeed_server.config.cache_dir import user_cache_dir

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the directory format, part of its fingerprint: other versions are not opened, and are
deleted when space is needed."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_DELETED = ".deleted-"
"""Prefix of a folder that is being deleted."""


@dataclass(frozen=True)
class CacheDirectory:
    """One directory of the cache."""

    path: Path
    pipeline: str
    """Name of the pipeline that made it."""
    samples: int
    """Samples of the dataset; the cache may hold fewer."""
    bytes: int
    used_at: float
    """Unix time at which it was last opened."""
    is_in_use: bool


def open_directory(
    root: Path, fingerprint: str, pipeline: str, samples: int, budget: int
) -> DiskStore | None:
    """Opens or creates a fingerprint's directory, after deleting unused ones as the budget
    requires. Returns None, with a warning, if the disk is full. Raises `ConfigError` if it cannot
    be written for another reason."""
    path = root / fingerprint
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(root / "lock"), ExitStack() as lock:
            kept = _collect(root, path, budget)
            path.mkdir(exist_ok=True, mode=0o700)
            lock.enter_context(locked(path / "in-use", fcntl.LOCK_SH))
            about = json.dumps({"pipeline": pipeline, "samples": samples}).encode()
            file, written = path / "about.json", path / "about.new"
            if not file.exists() or file.read_bytes() != about:  # the disk may be full now
                written.write_bytes(about)
                written.replace(file)
            file.touch()
            store = DiskStore(path, samples, budget - kept)
            store.held = lock.pop_all()
        return store
    except OSError as error:
        if error.errno in _NO_SPACE:
            log.warning("the cache %s is not used: %s; free some space", path, error.strerror)
            return None
        problem = f"cannot use the cache {path}: {error.strerror}"
        raise ConfigError(f"{problem}; give a writable path") from error


def default_root() -> Path:
    """Returns the root in the user's cache folder."""
    return user_cache_dir() / "samples"


def list_directories(root: Path) -> list[CacheDirectory]:
    """Returns the directories below a root, least recently used first."""
    return sorted(_list(root), key=lambda one: one.used_at)


def delete(directory: CacheDirectory) -> bool:
    """Deletes a directory; returns False if a process uses it."""
    with locked(directory.path.parent / "lock"):
        if is_in_use(directory.path):
            return False
        doomed = _rename(directory.path)
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def kept_samples(directory: CacheDirectory) -> int:
    """Returns the number of cached samples, without reading them."""
    with closing(DiskStore(directory.path, directory.samples, 0)) as store:
        return store.kept_samples


def verify(directory: CacheDirectory) -> tuple[int, int]:
    """Reads all samples; returns how many are cached, and how many damaged. Counts as a use, as
    samples deleted meanwhile would seem damaged."""
    with (
        locked(directory.path / "in-use", fcntl.LOCK_SH),
        closing(DiskStore(directory.path, directory.samples, 0)) as store,
    ):
        return store.verify()


def is_in_use(path: Path) -> bool:
    """Returns whether a process uses a directory."""
    try:
        with locked(path / "in-use", fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
    except FileNotFoundError:
        return False
    except OSError:  # it is locked, or belongs to another user
        return True


def _list(root: Path) -> Iterator[CacheDirectory]:
    for about in root.glob("[!.]*/about.json"):
        path = about.parent
        try:
            content = json.loads(about.read_text())
            used = about.stat().st_mtime
            size = sum(file.stat().st_blocks * 512 for file in path.iterdir())
            name, samples = str(content["pipeline"]), int(content["samples"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being deleted, or is not a cache directory
        yield CacheDirectory(path, name, samples, size, used, is_in_use(path))


def _rename(path: Path) -> Path:
    """Renames a directory before its deletion, so that an interrupted deletion leaves no cache."""
    doomed = path.with_name(f"{_DELETED}{path.name}-{time.time_ns()}")
    with suppress(FileNotFoundError):  # another process was faster
        path.rename(doomed)
    return doomed


def _collect(root: Path, keep: Path, budget: int) -> int:
    """Deletes unused directories, least recently used first, until those left take at most half of
    the budget. Returns their bytes."""
    for left in root.glob(f"{_DELETED}*"):
        shutil.rmtree(left, ignore_errors=True)
    unused = [one for one in list_directories(root) if one.path != keep and not one.is_in_use]
    total = sum(one.bytes for one in unused)
    for one in unused:
        if total <= budget // 2:
            break
        log.info("the unused cache of %r in %s is deleted", one.pipeline, one.path)
        shutil.rmtree(_rename(one.path), ignore_errors=True)
        total -= one.bytes
    return total
