"""The report of a profile as JSON: its figures and the advice."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from infeed_server.profile.advice import advice, doubt
from infeed_server.profile.figures import Profile, Stage


def to_json(profile: Profile, *, complete: bool) -> dict[str, Any]:
    """Returns the report. Times are seconds per sample, rates per second; null: not measured."""
    run = profile.run
    return {
        "pipeline": profile.name,
        "complete": complete,
        "cores": profile.cores,
        "batch_size": profile.batch_size,
        "samples": profile.samples,
        "bad_samples": {"count": profile.bad_samples, "first": profile.bad_example or None},
        "decoder": profile.decoder or None,
        "stages": [_stage(stage) for stage in profile.stages],
        "wire_bytes": profile.wire_bytes,
        "run": run
        and {
            "samples": profile.run_samples,
            "seconds": run.seconds,
            "samples_per_second": profile.run_samples / run.seconds,
            "cpu_seconds_per_sample": run.cpu_seconds / max(1, profile.run_samples),
            "cores_used": run.cpu_seconds / run.seconds,
            "other_cores": run.cores - run.usable_cores,
        },
        "doubts": [text] if (text := doubt(profile)) else [],
        "advice": advice(profile),
    }


def _stage(stage: Stage) -> dict[str, Any]:
    cpu, elapsed = stage.cost
    values = asdict(stage) | {"cpu_seconds": cpu, "elapsed_seconds": elapsed}
    del values["cost"]
    return values
