"""The options of a pack that decide its bytes, and the part that one command packs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, NamedTuple

from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from infeed.shared.errors import ConfigError
from infeed_server.config.options import Options, option
from infeed_server.order import MAX_SEED

SMALLER = "Smaller images"

_SIZE = TypeAdapter[int](Annotated[ByteSize, Field(gt=0)])


class OnBad(str, Enum):
    """The treatment of unreadable samples and undecodable images."""

    RAISE = "raise"
    SKIP = "skip"
    KEEP = "keep"


class PackOptions(Options):
    """The options that decide the bytes of a pack, besides its source."""

    name: str | None = option(
        None, "Prefix of the shards' names. Default: the pipeline's name.", metavar="NAME"
    )
    samples_per_shard: int | None = option(
        None, "Samples in a shard. Default: as many as fill --shard-size.", min=1
    )
    shard_size: str = option(
        "256MiB", "Approximate size of a shard, estimated from 64 samples.", metavar="SIZE"
    )
    seed: int | None = option(
        None,
        "Seed of a random order to pack in. Default: the order of the source.",
        min=0,
        max=MAX_SEED,
    )
    on_error: OnBad = option(
        OnBad.RAISE,
        "What to do about an unreadable sample, or with --short-side an undecodable image: "
        "stop, skip the sample, or keep the image unchanged. The manifest lists them.",
    )
    short_side: int | None = option(
        None,
        "Reduce images to this many pixels on the short side. Default: leave images unchanged.",
        SMALLER,
        min=1,
    )
    quality: int = option(90, "Quality of reduced JPEGs.", SMALLER, min=1, max=100)
    restart_markers: bool = option(
        False,
        "Begin each row of blocks in a reduced JPEG with a restart marker: infeed-jpeg skips "
        "rows outside a crop; other decoders take slightly longer.",
        SMALLER,
    )
    field: list[str] | None = option(
        None,
        "Image field to reduce; repeatable. Default: all image fields.",
        SMALLER,
        metavar="FIELD",
    )

    def shard_bytes(self) -> int:
        """Returns the size of a shard. Raises `ConfigError`."""
        try:
            return _SIZE.validate_python(self.shard_size)
        except ValidationError:
            text = f"--shard-size {self.shard_size!r} is not a size; give one such as 256MiB"
            raise ConfigError(text) from None

    def reduces(self, field: str) -> bool:
        """Returns whether a field's images are reduced."""
        return self.short_side is not None and field in (self.field or [field])


class Work(Options):
    """This command's share of the work, which does not change the bytes."""

    workers: int | None = option(None, "Number of processes. Default: the number of CPUs.", min=1)
    part: str | None = option(
        None,
        "Part of the shards to pack on this host: 0/4 to 3/4 on four hosts. Default: a Slurm "
        "array's task, else all.",
        metavar="I/N",
    )
    parts: int | None = option(None, "Number of parts; JOB_COMPLETION_INDEX is this host's.", min=1)


class Location(NamedTuple):
    """The definition of a source, which each process opens itself."""

    file: str
    """A YAML file, or `module:attr`."""
    pipeline: str


class Part(NamedTuple):
    """The shards that this command packs: those whose number modulo `of` is `number`."""

    number: int = 0
    of: int = 1

    def shards(self, total: int) -> range:
        return range(self.number, total, self.of)


def find_part(text: str | None, parts: int | None, environment: Mapping[str, str]) -> Part:
    """Returns the part given by `--part I/N`, a Kubernetes Job with `--parts`, or a Slurm array; by
    default all shards. Raises `ConfigError`."""
    if text is not None:
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or int(match[1]) >= int(match[2]):
            raise ConfigError(f"--part {text!r} is not I/N with I from 0 to N-1, such as 0/4")
        return Part(int(match[1]), int(match[2]))
    if tasks := int(environment.get("SLURM_ARRAY_TASK_COUNT", 0)):
        task, first, step = (
            int(environment.get(f"SLURM_ARRAY_TASK_{name}", default))
            for name, default in (("ID", 0), ("MIN", 0), ("STEP", 1))
        )
        return Part((task - first) // step, tasks)
    if parts is None or parts == 1:
        return Part()
    index = environment.get("JOB_COMPLETION_INDEX", "")
    if not index.isdigit() or int(index) >= parts:
        raise ConfigError(
            f"--parts {parts}: JOB_COMPLETION_INDEX is {index!r}, not 0 to {parts - 1}; run an "
            "Indexed Job of Kubernetes with as many completions, or give --part I/N"
        )
    return Part(int(index), parts)
