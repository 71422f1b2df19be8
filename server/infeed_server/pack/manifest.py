"""The manifest of a pack, by which it is verified: written when all shards are finished."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.pack.destination import Destination
from infeed_server.pack.options import PackOptions
from infeed_server.pack.plan import Plan, to_json

MANIFEST = "infeed-pack.json"
"""The manifest's file."""


def write_manifest(
    plan: Plan, destination: Destination, sidecars: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Writes the manifest of finished shards, and returns it."""
    changes: Counter[str] = Counter()
    for sidecar in sidecars:
        changes.update(sidecar["changes"])
    manifest = {
        **plan.document(),
        "pack": plan.digest,
        "root": plan.root,
        "samples": sum(sidecar["samples"] for sidecar in sidecars),
        "bytes": sum(sidecar["bytes"] for sidecar in sidecars),
        "changes": dict(sorted(changes.items())),
        "shards": [{k: v for k, v in sidecar.items() if k != "pack"} for sidecar in sidecars],
    }
    if not manifest["samples"]:
        raise ConfigError("each sample is bad, so that the pack has none; see --on-error")
    with suppress(FileNotFoundError):  # another command has written the same, and removed this
        destination.write(MANIFEST, to_json({**manifest, "sha256": _digest(manifest)}))
    return manifest


def read_manifest(destination: Destination) -> dict[str, Any]:
    """Returns the manifest. Raises `ConfigError` if there is none, or not the one written."""
    path, content = destination.path_of(MANIFEST), destination.read(MANIFEST)
    if content is None:
        raise ConfigError(
            f"{path} does not exist: the pack is not finished; run the same command without "
            "--verify first",
            file=path,
        )
    with suppress(ValueError, KeyError, AttributeError):
        manifest: dict[str, Any] = json.loads(content)
        if manifest.pop("sha256") == _digest(manifest):
            return manifest
    raise ConfigError(
        f"{path} is damaged; delete it, and run the same command without --verify, which writes "
        "it again",
        file=path,
    )


def packed_options(manifest: Mapping[str, Any]) -> PackOptions:
    """Returns the options of a finished pack."""
    return PackOptions.model_validate_json(json.dumps(manifest["options"]))


def _digest(manifest: Mapping[str, Any]) -> str:
    """Returns the hash that a manifest has of itself."""
    return hashlib.sha256(to_json(manifest)).hexdigest()
