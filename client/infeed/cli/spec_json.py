"""A pipeline's spec as the commands print it with `--json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from infeed.shared.spec import PipelineSpec

_SAME = ("name", "batch_size", "seed", "remainder", "on_error", "fingerprint", "server_version")


def spec_to_json(spec: PipelineSpec) -> dict[str, Any]:
    wire_types = {field.name: field.data_type for field in spec.wire_spec}
    return {
        **{name: getattr(spec, name) for name in _SAME},
        "source": spec.source_kind or None,
        # A resume in constant time needs samples that are read by index.
        "access": "indexed" if spec.guarantee.resume == "constant_time" else "sequential",
        "engine": spec.engine.replace("_", "-"),
        "samples": spec.sample_count,
        "fields": [
            {
                "name": field.name,
                "data_type": field.data_type,
                "shape": list(field.shape),
                "sent_as": wire_types.get(field.name),
            }
            for field in spec.element_spec
        ],
        "finish_transforms": list(map(str, spec.finish_transforms)),
        "shuffle": spec.shuffle_mode or None,
        "guarantee": asdict(spec.guarantee),
    }
