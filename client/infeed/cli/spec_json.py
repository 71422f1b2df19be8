"""A pipeline's spec as the commands print it with `--json`."""

from __future__ import annotations

from typing import Any

from infeed.shared.spec import PipelineSpec


def access(spec: PipelineSpec) -> str:
    """Returns whether samples are read by index, which a resume in constant time needs."""
    return "indexed" if spec.guarantee.resume == "constant_time" else "sequential"


def spec_to_json(spec: PipelineSpec) -> dict[str, Any]:
    wire_types = {field.name: field.data_type for field in spec.wire_spec}
    return {
        "name": spec.name,
        "source": spec.source_kind or None,
        "access": access(spec),
        "engine": spec.engine.replace("_", "-"),
        "samples": spec.sample_count,
        "batch_size": spec.batch_size,
        "fields": [
            {
                "name": field.name,
                "data_type": field.data_type,
                "shape": list(field.shape),
                "sent_as": wire_types.get(field.name),
            }
            for field in spec.element_spec
        ],
        "finish_transforms": [str(transform) for transform in spec.finish_transforms],
        "shuffle": spec.shuffle_mode or None,
        "seed": spec.seed,
        "remainder": spec.remainder,
        "on_error": spec.on_error,
        "guarantee": {
            "order": spec.guarantee.order,
            "delivery": spec.guarantee.delivery,
            "resume": spec.guarantee.resume,
        },
        "fingerprint": spec.fingerprint,
        "server_version": spec.server_version,
    }
