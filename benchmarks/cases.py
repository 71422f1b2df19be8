"""Benchmark cases: the two sides of each comparison and its target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

from benchmarks import (
    bad_samples,
    epochs,
    formats,
    hybrid,
    loaders,
    memory,
    mixtures,
    pack,
    records,
    servers,
    stores,
)
from benchmarks.duel import (
    Goal,
    Plan,
    Side,
    duel,
    first_batch_seconds,
    gigabytes_per_second,
    images_per_second,
    server_cpu_per_image,
    trainer_cpu_per_gigabyte,
)
from benchmarks.findings import Finding, Target

_FAR_MS = 15.0
"""Delay in each direction: a round trip of 30 ms."""

_DECODE_WARM_UP_SECONDS = 3.0
"""Uncounted time in which tf.data's AUTOTUNE finds its parallelism."""

_MIN_FIRST_BATCH_PAIRS = 9
"""Minimum pairs of the `first-batch` case: each run yields one short duration, which varies."""


@dataclass(frozen=True)
class Case:
    about: str
    run: Callable[[Plan], list[Finding]]


def _infeed(dataset: str) -> Side:
    return Side("infeed", "infeed", servers.infeed, dataset)


def _service(dataset: str, compression: str = "none") -> Side:
    name = "service" if compression == "none" else "service, compressed"
    return Side(name, "service", servers.service, dataset, compression)


def _flight(dataset: str) -> Side:
    return Side("Arrow Flight", "flight", partial(servers.flight, dataset), dataset)


def _flight_on_unix(dataset: str) -> Side:
    server = partial(servers.flight_on_unix, dataset)
    return Side("Arrow Flight, Unix socket", "flight", server, dataset)


def _on_unix(dataset: str) -> Side:
    return Side("infeed, Unix socket", "infeed", servers.infeed_on_unix, dataset)


def _on_flows(*rates: float, options: str = "") -> Side:
    name = f"{len(rates)} connection{'s' * (len(rates) > 1)}"
    server = partial(servers.infeed_on_flows, *rates, options=options)
    return Side(name, "infeed", server, "encoded", warm_up=3.0)


_SMALL_BATCHES = "batch_size=8&prefetch_batches=16"


def _without_checksums(dataset: str) -> Side:
    return Side("infeed, no checksums", "infeed", servers.infeed_without_checksums, dataset)


def _tcp(dataset: str) -> Side:
    return Side("raw TCP", "tcp", partial(servers.tcp, dataset), dataset)


def _behind_proxy(side: Side, delay_ms: float) -> Side:
    """Returns the same side with a delaying proxy in front of its server."""
    if side.kind == "service":
        server = servers.delayed_service(delay_ms)
    else:
        server = servers.delayed_server(side.server, delay_ms)
    return replace(side, name=f"{side.name}, {2 * delay_ms:g} ms", server=server)


def _case(about: str, ours: Side, theirs: Side, *goals: Goal) -> Case:
    return Case(about, partial(duel, ours, theirs, goals))


def _speed(target: Target | None = None) -> Goal:
    return Goal("GB/s", gigabytes_per_second, target)


def _cpu(target: Target | None = None) -> Goal:
    return Goal("trainer CPU s/GB", trainer_cpu_per_gigabyte, target, more_is_better=False)


def _decode(dataset: str, theirs: Side, at_least: float, ours: Side | None = None) -> Case:
    ours = replace(ours or _infeed(dataset), warm_up=_DECODE_WARM_UP_SECONDS)
    goal = Goal("images/s", images_per_second, Target(at_least))
    about = f"JPEGs to float32, {dataset}: {ours.name} ÷ {theirs.name}"
    return _case(about, ours, replace(theirs, warm_up=_DECODE_WARM_UP_SECONDS), goal)


def _many_trainers(count: int, target: Target | None) -> Case:
    one = replace(_infeed("photos"), name="1 trainer", warm_up=_DECODE_WARM_UP_SECONDS)
    many = replace(one, name=f"{count} trainers", trainers=count)
    about = f"total images/s of {count} trainers, each with its own seed ÷ one trainer's"
    return _case(about, many, one, Goal("images/s", images_per_second, target))


def _shared(count: int) -> Case:
    one = replace(_infeed("photos"), name="1 trainer", warm_up=_DECODE_WARM_UP_SECONDS)
    many = replace(one, name=f"{count} trainers", trainers=count, one_seed=True)
    about = f"JPEGs to float32: {count} trainers on one seed ÷ one trainer"
    cpu, limit = "server CPU ms/image", Target(1.15 / count, "at most")
    goals = (
        Goal(cpu, server_cpu_per_image, limit, more_is_better=False),
        Goal("images/s", images_per_second),
    )
    return _case(about, many, one, *goals)


def _epochs(store: str, part: float, at_least: float) -> Case:
    about = f"decoded JPEGs in a cache: {store}, {part:.0%} fit; the second epoch ÷ the first"
    return Case(about, partial(epochs.compare, store, part, at_least))


def _first_batch(plan: Plan) -> list[Finding]:
    ours, theirs = (replace(side, warm_up=0.0) for side in (_infeed("photos"), _service("photos")))
    target = Target(0.5, "at most", "figure", is_aim=True)
    goal = Goal("s to first batch", first_batch_seconds, target, more_is_better=False)
    return duel(ours, theirs, [goal], Plan(max(_MIN_FIRST_BATCH_PAIRS, plan.pairs), 0.1))


def _beside_dataloader(plan: Plan) -> list[Finding]:
    if find_spec("torch") is None:
        print("skipped: PyTorch is not installed; pip install torch==2.13.0 into .venv")
        return []
    ours = Side("infeed", "infeed", servers.infeed_map_style, "map_style")
    theirs = Side("DataLoader", "dataloader", servers.no_server, "map_style")
    ours, theirs = (replace(side, warm_up=_DECODE_WARM_UP_SECONDS) for side in (ours, theirs))
    return duel(ours, theirs, [Goal("images/s", images_per_second, Target(0.95))], plan)


def _adapter(kind: str, package: str, target: Target | None) -> Case:
    """Compares an adapter with the NumPy feed it reads."""

    def run(plan: Plan) -> list[Finding]:
        if find_spec(package) is None:
            print(f"skipped: {package} is not installed; make test-frameworks installs it")
            return []
        feed = _infeed("uint8")
        return duel(replace(feed, name=kind, kind=kind), feed, [_speed(target), _cpu()], plan)

    return Case(f"9.6 MB batches: the adapter {kind} ÷ the NumPy feed", run)


def _aim(ratio: float) -> Target:
    return Target(ratio, is_aim=True)


_IN_TLS = Side("infeed in TLS", "infeed", servers.infeed_in_tls, "uint8")
_UNOBSERVED = Side("unobserved", "infeed", servers.infeed_unobserved, "uint8")
_GATEWAY = Side("gateway", "infeed", servers.gateway, "photos")
_FAR_INFEED = _behind_proxy(_infeed("uint8"), _FAR_MS)

CASES: dict[str, Case] = {
    "transport-float32": _case(
        "38.5 MB batches",
        _infeed("float32"),
        _service("float32"),
        _speed(Target(4.0)),
        _cpu(Target(1.0, "at most")),
    ),
    "transport-uint8": _case(
        "9.6 MB batches",
        _infeed("uint8"),
        _service("uint8"),
        _speed(Target(1.1)),
        _cpu(Target(1.0, "at most")),
    ),
    "transport-uint8-30ms": _case(
        "9.6 MB batches, both 30 ms away",
        _FAR_INFEED,
        _behind_proxy(_service("uint8"), _FAR_MS),
        _speed(Target(3.5)),
    ),
    "infeed-30ms-0ms": _case(
        "cost of distance: infeed 30 ms away ÷ infeed direct",
        _FAR_INFEED,
        _infeed("uint8"),
        _speed(Target(0.9)),
    ),
    "infeed-30ms-0ms-proxied": _case(
        "cost of distance: infeed 30 ms away ÷ infeed through a proxy without delay",
        _FAR_INFEED,
        _behind_proxy(_infeed("uint8"), 0.0),
        _speed(Target(0.9)),
    ),
    "connections-4": _case(
        "JPEGs' bytes over a link of 20 MB/s for each connection: 4 connections ÷ 1",
        _on_flows(*[20e6] * 4),
        _on_flows(20e6),
        Goal("images/s", images_per_second, Target(3.0)),
    ),
    "connections-slow": _case(
        "the same in small batches, with one connection of four at 2 MB/s ÷ without it",
        _on_flows(20e6, 20e6, 20e6, 2e6, options=_SMALL_BATCHES),
        _on_flows(*[20e6] * 3, options=_SMALL_BATCHES),
        Goal("images/s", images_per_second, Target(0.9)),
    ),
    "flight-float32": _case(
        "38.5 MB batches", _infeed("float32"), _flight("float32"), _speed(_aim(1.0))
    ),
    "flight-uint8": _case("9.6 MB batches", _infeed("uint8"), _flight("uint8"), _speed(_aim(1.0))),
    "flight-float32-off": _case(
        "38.5 MB batches, neither with checksums",
        _without_checksums("float32"),
        _flight("float32"),
        _speed(Target(1.1)),
    ),
    "flight-uint8-off": _case(
        "9.6 MB batches, neither with checksums",
        _without_checksums("uint8"),
        _flight("uint8"),
        _speed(Target(0.75)),
    ),
    "unix-flight": _case(
        "9.6 MB batches on one host",
        _on_unix("uint8"),
        _flight_on_unix("uint8"),
        _speed(Target(2.0)),
        _cpu(Target(0.01, "at most", "figure")),
    ),
    "unix-service-uint8": _case(
        "9.6 MB batches on one host", _on_unix("uint8"), _service("uint8"), _speed(Target(8.0))
    ),
    "unix-service-float32": _case(
        "38.5 MB batches on one host",
        _on_unix("float32"),
        _service("float32"),
        _speed(Target(8.0)),
        _cpu(Target(0.01, "at most", "figure")),
    ),
    "unix-inprocess": _case(
        "JPEGs to float32 on one host, beside a busy Python thread of the trainer",
        replace(_on_unix("photos"), warm_up=_DECODE_WARM_UP_SECONDS, is_busy=True),
        Side(
            "in process",
            "inprocess",
            servers.no_server,
            "photos",
            warm_up=_DECODE_WARM_UP_SECONDS,
            is_busy=True,
        ),
        Goal("images/s", images_per_second, Target(1.35)),
    ),
    "tcp-float32": _case("38.5 MB batches", _infeed("float32"), _tcp("float32"), _speed(_aim(0.7))),
    "tcp-uint8": _case("9.6 MB batches", _infeed("uint8"), _tcp("uint8"), _speed(_aim(0.7))),
    "observed-uint8": _case(
        "9.6 MB batches with metrics, states and reports ÷ without",
        _infeed("uint8"),
        _UNOBSERVED,
        _speed(Target(0.98)),
    ),
    "observed-photos": _case(
        "JPEGs to float32 with metrics, states and reports ÷ without",
        replace(_infeed("photos"), warm_up=_DECODE_WARM_UP_SECONDS),
        replace(_UNOBSERVED, dataset="photos", warm_up=_DECODE_WARM_UP_SECONDS),
        Goal("images/s", images_per_second, Target(0.98)),
    ),
    "tls-uint8": _case(
        "9.6 MB batches in TLS ÷ in the clear", _IN_TLS, _infeed("uint8"), _speed(Target(0.5))
    ),
    "tls-photos": _case(
        "in TLS ÷ in the clear, JPEGs to float32",
        replace(_IN_TLS, dataset="photos", warm_up=_DECODE_WARM_UP_SECONDS),
        replace(_infeed("photos"), warm_up=_DECODE_WARM_UP_SECONDS),
        Goal("images/s", images_per_second, Target(0.97)),
    ),
    "float32-as-uint8": _case(
        "a float32 pipeline that infeed sends as uint8; GB of float32 delivered",
        _infeed("scaled"),
        _service("float32"),
        _cpu(Target(0.4, "at most")),
        _speed(),
    ),
    "decode-default": _decode("photos", _service("photos", "auto"), 1.7),
    "decode-uncompressed": _decode("photos", _service("photos"), 2.0),
    "decode-inprocess": _decode(
        "photos", Side("in process", "inprocess", servers.no_server, "photos"), 1.2
    ),
    "gateway-decode": _decode("photos", _service("photos"), 1.0, _GATEWAY),
    "distribute-decode": _decode(
        "photos",
        _service("photos"),
        1.0,
        replace(_GATEWAY, name="distribute", kind="distribute"),
    ),
    "crop-default": _decode("cropped", _service("cropped", "auto"), 1.7),
    "python-dataloader": Case(
        "photos of a map-style data set, decoded by Pillow in 4 processes: infeed ÷ DataLoader",
        _beside_dataloader,
    ),
    "loaders": Case(
        "photos decoded and resized to uint8, by loaders and services: infeed ÷ each",
        loaders.compare,
    ),
    "adapter-jax": _adapter("jax", "jax", Target(0.95)),
    "adapter-torch": _adapter("torch", "torch", Target(0.95)),
    "adapter-grain": _adapter("grain", "grain", Target(0.95)),
    "adapter-tensors": _adapter("tensors", "tensorflow", Target(0.95)),
    "adapter-from-generator": _adapter("from_generator", "tensorflow", None),
    "trainers-4": _many_trainers(4, None),
    "trainers-16": _many_trainers(16, Target(0.95)),
    **{f"shared-{count}": _shared(count) for count in (2, 4, 8)},
    "cache-memory": _epochs("memory", 1.0, 7.0),
    "cache-disk": _epochs("disk", 1.0, 5.0),
    "cache-half": _epochs("memory", 0.5, 1.7),
    "bad-samples": Case(
        "the first epoch of photos, 1 % of them cut off ÷ none", bad_samples.compare
    ),
    "first-batch": Case("from connect to the first batch of a warm server", _first_batch),
    "mixtures": Case("the order of mixtures of 2 to 256 parts", mixtures.compare),
    "index-1m": Case("the record index of a million small records", records.compare),
    "stores": Case(
        "JPEGs in an object store 30 ms away, with 1 % errors ÷ local files", stores.compare
    ),
    "formats": Case("the same photos in other formats ÷ in TFRecords", formats.compare),
    "pack": Case("photos decoded and cropped at random: packed ÷ in files", pack.compare),
    "hybrid": Case(
        "JPEGs to float32: a local server on one core and a remote one, 30 ms away, as one target",
        hybrid.compare,
    ),
    "memory": Case(
        "9.6 MB batches",
        partial(memory.compare, _infeed("uint8"), _service("uint8")),
    ),
}
