"""The advice of a profile: what to change, from its largest shares and its limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infeed.shared.report import ServerReport
from infeed_tools.profile.figures import Profile, Stage

_LARGE_SHARE = 0.25
"""Share of the CPU time of a stage worth naming: below it, its cost hardly matters."""

_BUSY_SHARE = 0.8
"""Share of the available cores that a computing run uses; one that uses less is waiting."""

_MAX_DIFFERENCE = 0.4
"""Share by which the CPU time of the whole run may differ from the sum of its stages: beyond it,
the stages' shares tell nothing about the run."""

_HINTS = {
    "decode_image": "smaller images decode faster; with a crop right after it, only the window is "
    "decoded",
    "native": "smaller images decode faster",
    "resize": "with a crop before it, only the window is resized",
    "batch": "smaller samples cost less to copy",
    "map": "make it cheaper, or do its work once, before training",
}
"""What usually makes a transform cheaper, by its name."""


def advice(profile: Profile) -> list[str]:
    """Returns the advice that a run's figures support, the most effective first."""
    if profile.run is None:
        return []
    return [*_reading(profile, profile.run), *_cache(profile), *_large(profile), *_sent(profile)]


def doubt(profile: Profile) -> str:
    """Returns why the figures are unreliable; empty if stages and run agree."""
    if profile.run is None or not profile.run_samples or not profile.stages:
        return ""
    whole = profile.run.cpu_seconds / profile.run_samples
    stages = sum(
        stage.cost.cpu for stage in profile.stages if stage.kind not in ("finish", "cache")
    )
    if abs(stages - whole) <= _MAX_DIFFERENCE * whole:
        return ""
    return (
        f"a sample took {stages * 1e6:,.0f} µs of CPU time in the stages one by one, but "
        f"{whole * 1e6:,.0f} µs in the whole pipeline"
    )


def _reading(profile: Profile, run: ServerReport) -> Iterator[str]:
    """Yields advice if reading is the limit, even with all cores free of other processes."""
    is_computing = run.cpu_seconds >= _BUSY_SHARE * run.seconds * run.usable_cores
    # Empty if a cache keeps what was read: reading ends with the first epoch.
    reads = [stage for stage in profile.server_stages if stage.kind in ("read", "map")]
    if reads and run.source_seconds / run.seconds > (run.cpu_share if is_computing else 0.5):
        slowest = max(reads, key=lambda stage: stage.cost.elapsed)
        if slowest.kind == "map":
            yield f"{slowest.name} is the limit: raise its processes"
        elif profile.source_kind == "python":
            yield "the data set in Python is the limit: raise source.processes"
        else:
            rate = slowest.bytes_out / max(slowest.cost.elapsed, 1e-9) / 1e6
            text = f"reading is the limit, at {rate:,.0f} MB/s alone: use nearer or faster storage"
            small = "; a file per sample costs a request each, but TFRecords read many at once"
            yield text + (small if profile.source_kind == "images" else "")


def _cache(profile: Profile) -> Iterator[str]:
    """Yields the share that is the same in every epoch, if it is large and `cache` can keep it."""
    last = max((i for i, stage in enumerate(profile.stages) if stage.cacheable), default=None)
    if last is None or any(stage.cached for stage in profile.stages):
        return
    share = _share(profile, *profile.stages[: last + 1])
    if share >= _LARGE_SHARE:
        stage = profile.stages[last]
        size = profile.source_samples * stage.bytes_out / (1 << 20)
        yield (
            f"{share:.0%} of the CPU time goes into work that is the same in every epoch: cache "
            f"after {stage.name} (transforms[{stage.ordinal}]) saves it from the second epoch on, "
            f"for {size:,.0f} MiB of memory with {profile.source_samples:,} samples"
        )


def _large(profile: Profile) -> Iterator[str]:
    """Yields the stages that take much of the CPU time."""
    for stage in sorted(profile.server_stages, key=lambda stage: -stage.cost.cpu):
        share = _share(profile, stage)
        hint = _HINTS.get(re.split("[ +]", stage.name)[0])
        if share >= _LARGE_SHARE and hint:
            yield f"{stage.label} takes {share:.0%} of the CPU time: {hint}"


def _sent(profile: Profile) -> Iterator[str]:
    """Yields the server's transforms that add bytes and that a trainer could run."""
    for stage in profile.server_stages:
        if stage.name in ("cast", "normalize", "one_hot") and stage.bytes_out > stage.bytes_in:
            yield (
                f"{stage.label} turns {stage.bytes_in / 1e3:,.0f} KB into "
                f"{stage.bytes_out / 1e3:,.0f} KB before sending: at the end of the list, the "
                "trainer runs it, with the same result if the transforms after it only move or "
                "drop pixels"
            )


def _share(profile: Profile, *stages: Stage) -> float:
    total = sum(stage.cost.cpu for stage in profile.server_stages)
    return sum(stage.cost.cpu for stage in stages) / total if total else 0.0
