"""Calls of gRPC's standard services: health and reflection."""

from __future__ import annotations

import random

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import (
    CALLS,
    HEALTH,
    REFLECTION,
    Call,
    Catalog,
    codes,
    headers,
    odd_number,
    odd_string,
)


@CALLS.add(4)
def health_names(rng: random.Random, catalog: Catalog) -> Call:
    is_watch = rng.random() < 0.5
    known = rng.random() < 0.3
    name = (
        rng.choice(["", "infeed.v1.FeedService"]) if known else odd_string(rng) + str(rng.random())
    )
    body = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    path = HEALTH + ("Watch" if is_watch else "Check")
    code = "OK" if known else "NOT_FOUND"
    return Call(
        headers(path),
        [frames.message(body)],
        cancel_after_seconds=rng.choice((0.0, 0.01, 0.2)) if is_watch else None,
        codes=codes("OK", "NOT_FOUND") if is_watch else codes(code),
    )


@CALLS.add(4)
def reflection(rng: random.Random, catalog: Catalog) -> Call:
    requests = []
    for _ in range(rng.randint(1, 8)):
        text = rng.choice([odd_string(rng)[:5000], "infeed.v1.FeedService", "infeed/v1/spec.proto"])
        request = rng.choice(
            [
                reflection_pb2.ServerReflectionRequest(file_by_filename=text),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=text),
                reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type=text),
                reflection_pb2.ServerReflectionRequest(list_services=text),
                reflection_pb2.ServerReflectionRequest(host=text),
                reflection_pb2.ServerReflectionRequest(
                    file_containing_extension=reflection_pb2.ExtensionRequest(
                        containing_type=text, extension_number=odd_number(rng, 32)
                    )
                ),
            ]
        )
        requests.append(frames.message(request.SerializeToString()))
    return Call(headers(REFLECTION), requests, codes=codes("OK"))
