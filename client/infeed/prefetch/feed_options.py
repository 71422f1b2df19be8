"""Options of a feed, as `connect` and the framework adapters take them, checked once.

To add an option, write it in `FeedOptions` and repeat its name and type in `ConnectOptions`.
"""
# ruff: noqa: RUF009 - `checked_option` returns a field

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, get_args

from infeed.cursor import MAX_POSITION, Cursor, Shard
from infeed.http2.tls_config import TLS
from infeed.prefetch.byte_window import MAX_BATCHES, MIN_BATCHES
from infeed.rpc.credentials import Token
from infeed.shared.arguments import (
    MAX_INT64,
    check_choice,
    check_flag,
    check_integer,
    check_seconds,
    check_text,
)
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE, MAX_JOB_NAME_LENGTH, FinishPlacement, Remainder
from infeed.transport import Transport

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

ChecksumUse = Literal["auto", "xxh3", "off"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Check = Callable[[str, Any], Any]
"""Takes an option's name and value; returns the value to keep. Raises `InvalidRequestError`."""

PREFETCH_BYTES = 256 << 20
"""Default bytes of prefetched batches: more hides longer pauses of the servers."""


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`, which the adapters of frameworks also take."""

    batch_size: int | None
    shard: Shard | None
    seed: int | None
    epochs: int | None
    steps: tuple[int, int] | None
    remainder: Remainder | None
    empty: Mapping[str, float] | None
    state: Mapping[str, Any] | Cursor | None
    finish: FinishPlacement
    job_name: str | None
    prefetch_bytes: int
    prefetch_batches: int | None
    connections: int
    shared_memory: bool
    checksum: ChecksumUse
    timeout: float
    reconnect_timeout: float
    token: Token | None
    tls: TLS | bool | None
    transport: Transport | None
    tracer_provider: TracerProvider | None


def checked_option(default: T, text: str, check: Check = lambda _, value: value) -> T:
    """Declares an option. A default of None is not checked."""
    return field(default=default, metadata={"text": text, "check": check})


def _integer(low: int, high: int = MAX_INT64, or_none: str = "") -> Check:
    return partial(check_integer, low=low, high=high, or_none=or_none)


def _check_shard(name: str, value: Any) -> Shard:
    if not isinstance(value, Shard):
        raise InvalidRequestError(
            f"{name} must be an infeed.Shard(rank, world_size) or None, not {value!r}"
        )
    return value


def _check_steps(name: str, value: Any) -> tuple[int, int]:
    valid = f"{name} must be None, or a tuple of the first step and the end, such as (100, 200)"
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidRequestError(f"{valid}, not {value!r}")
    first, end = (check_integer(name, number, 0, MAX_POSITION) for number in value)
    if first >= end:
        raise InvalidRequestError(f"{valid}; no step lies from {first} to {end}, which is excluded")
    return first, end


def _check_empty(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, Mapping) and all(
        isinstance(field, str) and isinstance(number, Real) for field, number in value.items()
    ):
        return dict(value)
    raise InvalidRequestError(
        f'{name} must be a dict of fields and numbers, such as {{"label": -100}}, not {value!r}'
    )


def _check_job_name(name: str, value: Any) -> str:
    text = check_text(name, value)
    if len(text) > MAX_JOB_NAME_LENGTH:
        raise InvalidRequestError(f"{name} has more than {MAX_JOB_NAME_LENGTH} characters")
    return text


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """Options that each have a text and a check. Raises `InvalidRequestError`."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                checked = option.metadata["check"](option.name, value)
                object.__setattr__(self, option.name, checked)


@dataclass(frozen=True, kw_only=True)
class FeedOptions(CheckedOptions):
    """The options of one feed: numbers as int and float, the state as a `Cursor`."""

    batch_size: int | None = checked_option(
        None,
        "slots of this rank's batches; None: the pipeline's. A batch larger than the pipeline's "
        "may take up to 1 GiB",
        _integer(1, MAX_BATCH_SIZE, "the pipeline's"),
    )
    shard: Shard | None = checked_option(
        None,
        "rank and world size, an `infeed.Shard`; None: a single trainer, with a warning if the "
        "launcher or JAX has started several processes",
        _check_shard,
    )
    seed: int | None = checked_option(
        None,
        "seed of order and augmentation, 0 to 2^63 - 1; None: the cursor's, else the pipeline's",
        _integer(0, MAX_INT64, "the pipeline's"),
    )
    epochs: int | None = checked_option(
        None, "number of epochs; None: endless", _integer(1, MAX_INT64, "an endless feed")
    )
    steps: tuple[int, int] | None = checked_option(
        None,
        "`(first, end)` of steps to read again, bit-identical, all in one pass and segment of the "
        "run; None: the run's next steps",
        _check_steps,
    )
    remainder: Remainder | None = checked_option(
        None,
        '`"drop"` or `"pad"` the samples at the end of the last epoch that do not fill a batch on '
        "every rank; None: the pipeline's",
        partial(check_choice, choices=get_args(Remainder)),
    )
    empty: Mapping[str, float] | None = checked_option(
        None,
        'values of fields in empty slots, such as `{"label": -100}` for a loss that ignores '
        "that label; None: zero",
        _check_empty,
    )
    state: Mapping[str, Any] | Cursor | None = checked_option(
        None,
        "the cursor to resume from, a result of `Feed.state()`",
        lambda _, state: Cursor.from_json(state),
    )
    finish: FinishPlacement = checked_option(
        "trainer",
        'where the finish transforms run: `"server"` makes batches larger; with `"none"` batches '
        "arrive as sent, and you run `Feed.pending_transforms`",
        partial(check_choice, choices=get_args(FinishPlacement)),
    )
    job_name: str | None = checked_option(
        None,
        "on TensorFlow's data service, the job to join, which splits its samples among its "
        "trainers; None: a job for this feed alone",
        _check_job_name,
    )
    prefetch_bytes: int = checked_option(
        PREFETCH_BYTES,
        "bound on the prefetched batches, in bytes; at least two batches are prefetched",
        _integer(0),
    )
    prefetch_batches: int | None = checked_option(
        None,
        "maximum number of prefetched batches, 2 to 64; None: as many as fit into `prefetch_bytes`",
        _integer(MIN_BATCHES, MAX_BATCHES, "as many as prefetch_bytes holds"),
    )
    connections: int = checked_option(
        1,
        "connections to each server, 1 to 16, for links that one connection cannot fill; a "
        "`unix:` address or a sequential pipeline always has one",
        _integer(1, 16),
    )
    shared_memory: bool = checked_option(
        True,
        "whether batches from a Unix socket arrive in shared memory; False: they are copied "
        "through the socket",
        check_flag,
    )
    checksum: ChecksumUse = checked_option(
        "auto",
        'checksums of payloads: `"xxh3"`, `"off"`, or `"auto"`, which omits them over TLS and '
        "Unix sockets",
        partial(check_choice, choices=get_args(ChecksumUse)),
    )
    timeout: float = checked_option(
        20.0, "seconds to wait for the first server to start", check_seconds
    )
    reconnect_timeout: float = checked_option(
        60.0,
        "seconds without any server before the feed fails",
        partial(check_seconds, endless=True),
    )
    token: Token | None = checked_option(
        None,
        "authenticates this trainer: a string, or a function that returns one for each call",
    )
    tls: TLS | bool | None = checked_option(
        None, "`infeed.TLS(...)`, or True for the system's authorities; None: no encryption"
    )
    transport: Transport | None = checked_option(
        None, "replaces gRPC, for example with a fake: `infeed.testing.FakeTransport`"
    )
    tracer_provider: TracerProvider | None = checked_option(
        None,
        "OpenTelemetry provider that traces batches; None: no tracing",
    )

    @property
    def cursor(self) -> Cursor | None:
        """The cursor of `state`."""
        assert self.state is None or isinstance(self.state, Cursor)
        return self.state


OPTION_NAMES = tuple(option.name for option in fields(FeedOptions))


def document_options(function: F, model: type[CheckedOptions] = FeedOptions) -> F:
    """Writes the options into the signature, and into the docstring in place of `OPTIONS`."""
    column = max(len(option.name) for option in fields(model)) + 2
    lines = [f"{option.name:{column}}{option.metadata['text']}" for option in fields(model)]
    docstring = inspect.getdoc(function) or ""
    function.__doc__ = docstring.replace("OPTIONS", "\n".join(lines))
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    parameters = [*own, *inspect.signature(model).parameters.values()]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function
