"""The identity of images: a hash of names and labels, and at choice of stamps or content."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

from infeed_server.sources.base import ProgressCallback
from infeed_server.sources.files import is_remote, read_bytes, remembered
from infeed_server.sources.images.labels import Labels
from infeed_server.sources.images.listing import ImageFile, ImageListing

Identity = Literal["names", "size", "modified", "content"]

_HASH_THREADS = 8
"""Threads that read files to hash them: more hide more of a file system's latency."""
_HASHED_TOGETHER = 1024
"""Files given to the threads at a time: each has a future in memory."""


def images_identity(
    listing: ImageListing,
    labels: Labels | None,
    identity: Identity,
    progress: ProgressCallback | None = None,
) -> str:
    """Returns the hash. With `content`, reads every file, unless all stamps are as remembered."""
    digest = hashlib.sha256(f"images {identity}\n".encode())
    for number, file in enumerate(listing.images):
        label = b"" if labels is None or number in labels.missing else labels.values[number]
        label = label if isinstance(label, bytes) else str(label).encode()
        digest.update(b"%b\0%b\0%b\n" % (os.fsencode(file.path), _version(file, identity), label))
    if identity == "content":
        compute = partial(_hash_files, listing, progress)
        if is_remote(listing.root):
            content = compute()
        else:
            stamps = hashlib.sha256()
            for file in listing.images:
                path, version = os.fsencode(file.path), _version(file, "modified")
                stamps.update(b"%b\0%b\n" % (path, version))
            newest = max(file.mtime_ns for file in listing.images)
            content = remembered(f"images {listing.root}", stamps.hexdigest(), newest, compute)
        digest.update(content.encode())
    return digest.hexdigest()


def _version(file: ImageFile, identity: Identity) -> bytes:
    if identity == "size":
        return b"%d" % file.size
    return b"%d %d" % (file.size, file.mtime_ns) if identity == "modified" else b""


def _hash_files(listing: ImageListing, progress: ProgressCallback | None) -> str:
    root = listing.root.rstrip("/")
    total = sum(max(file.size, 0) for file in listing.images)
    done = 0

    def hash_file(file: ImageFile) -> tuple[int, bytes]:
        content = read_bytes(f"{root}/{file.path}")
        return len(content), hashlib.sha256(content).digest()

    digest = hashlib.sha256()
    with ThreadPoolExecutor(_HASH_THREADS, "infeed-hash") as pool:
        for begin in range(0, len(listing.images), _HASHED_TOGETHER):
            files = listing.images[begin : begin + _HASHED_TOGETHER]
            for size, content_hash in pool.map(hash_file, files):
                digest.update(content_hash)
                done += size
            if progress is not None:
                progress(min(done, total), total)
    return digest.hexdigest()
