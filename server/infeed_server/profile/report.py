"""The report of a profile as JSON: its figures, the forecast and the advice."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from infeed_server.profile.advice import advice
from infeed_server.profile.figures import Profile
from infeed_server.profile.forecast import Fleet, forecast, rate_beside_others, rate_of_run
from infeed_server.profile.reliability import doubts


def to_json(profile: Profile, fleet: Fleet | None, *, complete: bool) -> dict[str, Any]:
    """Returns the report. Times are seconds per sample, rates per second; null: not measured."""
    made = forecast(profile)
    run = profile.run
    return {
        "pipeline": profile.name,
        "complete": complete,
        "cores": profile.cores,
        "batch_size": profile.batch_size,
        "samples": profile.samples,
        "bad_samples": {"count": profile.bad_samples, "first": profile.bad_example or None},
        "note": profile.note or None,
        "stages": [
            {
                "kind": stage.kind,
                "name": stage.name,
                "ordinal": stage.ordinal,
                "cpu_seconds": stage.cost.cpu,
                "cpu_seconds_spread": stage.cost.spread,
                "elapsed_seconds": stage.cost.elapsed,
                "bytes_in": stage.bytes_in,
                "bytes_out": stage.bytes_out,
                "cached": stage.cached,
                "runs_python": stage.runs_python,
            }
            for stage in profile.stages
        ],
        "wire_bytes": profile.wire_bytes,
        "finished_bytes": profile.finished_bytes,
        "run": run
        and {
            "samples": run.samples,
            "seconds": run.seconds,
            "samples_per_second": run.samples_per_second,
            "cpu_seconds_per_sample": run.cpu_per_sample,
            "cores_used": run.cores_used,
            "other_cores": run.other_cores,
        },
        "doubts": doubts(profile, made),
        "forecast": made
        and {
            **asdict(made),
            "samples_at_cores_used": run and rate_of_run(made, run),
            "samples_beside_others": run and rate_beside_others(made, run, profile.cores),
        },
        "fleet": fleet and asdict(fleet),
        "advice": [asdict(each) for each in advice(profile, made)] if made else [],
    }
