"""The inventory of a target: the pipelines of each of its servers, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import InfeedError
from infeed.shared.spec import PipelineSpec

if TYPE_CHECKING:
    from infeed.rpc.channel import GrpcTransport

_MAX_THREADS = 16
"""Servers that are asked at the same time: with fewer, each that does not answer delays others."""

_COMPARED: Mapping[str, Callable[[PipelineSpec], Any]] = {
    "source": lambda spec: spec.source_kind or "unknown",
    "samples": lambda spec: "unknown" if spec.sample_count is None else spec.sample_count,
    "fields": lambda spec: ", ".join(map(str, spec.element_spec)),
    "guarantee": lambda spec: str(spec.guarantee),
    "shuffle": lambda spec: spec.shuffle_mode or "unknown",
    "seed": lambda spec: spec.seed,
    "batch size": lambda spec: spec.batch_size,
    "remainder": lambda spec: spec.remainder,
    "on_error": lambda spec: spec.on_error,
    "engine": lambda spec: spec.engine.replace("_", "-"),
    "fingerprint": lambda spec: spec.fingerprint,
}
"""What equivalent servers have in common, as a person reads it."""


@dataclass(frozen=True)
class ServerPipelines:
    """One server's pipelines, sorted by name, or the error of asking for them."""

    server: str
    pipelines: tuple[PipelineSpec, ...] = ()
    error: InfeedError | None = None


def list_servers(transport: GrpcTransport, timeout: float) -> list[ServerPipelines]:
    """Asks every server of a target. Waits for each for at most `timeout` seconds.

    Raises the error of the first server if no server answers.
    """

    def ask(server: str) -> ServerPipelines:
        with closing(transport.for_server(server)) as single:
            try:
                return ServerPipelines(server, tuple(single.list_pipelines(timeout)))
            except InfeedError as error:
                return ServerPipelines(server, error=error)

    servers = transport.servers()
    with ThreadPoolExecutor(min(_MAX_THREADS, len(servers)), "infeed-list") as pool:
        listed = list(pool.map(ask, servers))
    errors = [server.error for server in listed if server.error is not None]
    if len(errors) == len(listed):
        raise errors[0]
    return listed


def specs_by_name(listed: Sequence[ServerPipelines]) -> dict[str, dict[str, PipelineSpec]]:
    """Returns the spec of each pipeline by server: name → server → spec, sorted by name."""
    result: dict[str, dict[str, PipelineSpec]] = {}
    for server in listed:
        for spec in server.pipelines:
            result.setdefault(spec.name, {})[server.server] = spec
    return dict(sorted(result.items()))


def differences(listed: Sequence[ServerPipelines]) -> list[str]:
    """Describes how servers differ that should be equivalent; empty if they are."""
    result = [f"{item.server}: {item.error}" for item in listed if item.error is not None]
    answering = [item.server for item in listed if item.error is None]
    for name, specs in specs_by_name(listed).items():
        if missing := [server for server in answering if server not in specs]:
            result.append(
                f"{name}: served by {', '.join(specs)}, but not by {', '.join(missing)}; a feed "
                "reads from the former only"
            )
        result += _differences_of(name, specs)
    return result


def _differences_of(name: str, specs: Mapping[str, PipelineSpec]) -> Iterator[str]:
    for label, value_of in _COMPARED.items():
        servers: dict[Any, list[str]] = {}
        for server, spec in specs.items():
            servers.setdefault(value_of(spec), []).append(server)
        if len(servers) < 2:
            continue
        listed = "; ".join(f"{value} at {', '.join(at)}" for value, at in servers.items())
        remedy = ""
        if label == "fingerprint":
            remedy = (
                ". A feed never mixes them: serve the same definition, data and TensorFlow version"
            )
        yield f"{name}: {label} differs: {listed}{remedy}"
