"""The command `infeed pack`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed.cli.model_options import with_models
from infeed.shared.errors import ConfigError
from infeed_server.cli.console import (
    console,
    index_progress,
    loading_tensorflow,
    print_line,
    sample_progress,
)
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow
from infeed_server.pack.options import Location, PackOptions, Part, Work, find_part

if TYPE_CHECKING:
    from infeed_server.pack.destination import Destination
    from infeed_server.pack.measure import Looks
    from infeed_server.pack.plan import Plan

_MAX_SHOWN = 10


@with_models
def pack(
    source: Annotated[
        str,
        typer.Argument(
            help="A YAML file of pipelines, module:attr in Python, or data that infeed init knows."
        ),
    ],
    dest: Annotated[str, typer.Argument(help="The folder of the shards, or a URL of a store.")],
    options: PackOptions,
    work: Work,
    pipeline: Annotated[
        str | None,
        typer.Option(help="The pipeline whose source is packed. Default: the only one."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE[:COLUMN]", help="Labels of images, as for infeed init."),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare a finished pack with its source instead."),
    ] = False,
) -> None:
    """Writes a source as a few large files: TFRecords, ArrayRecords or tars.

    Transforms are not applied. The same command continues after it was ended,
    however; any number of workers and parts writes the same bytes. The one that
    finds all shards finished writes infeed-pack.json.

    With --verify, exits with status 1 if a byte of the pack is not the source's.

    \b
    Examples:
      infeed pack data/photos packed
      infeed pack pipelines.yaml packed --pipeline train --short-side 256
      infeed pack data/photos gs://bucket/photos --workers 16 --part 0/8
      infeed pack data/photos packed --verify
    """
    set_up_logging()
    defer_tensorflow()
    chosen = find_part(work.part, work.parts, os.environ)
    from infeed_server.pack.destination import Destination
    from infeed_server.processes import cgroup

    destination, count = Destination(dest), work.workers or cgroup.cpu_count()
    # What the user's code prints is not the result.
    with redirect_stdout(sys.stderr), _location(source, pipeline, labels) as location:
        with loading_tensorflow():
            load_tensorflow()
        if verify:
            _verify(location, destination, count)
        else:
            _pack(location, destination, options, count, chosen)


def _pack(
    location: Location, destination: Destination, options: PackOptions, workers: int, part: Part
) -> None:
    from infeed_server.pack.plan import make_plan
    from infeed_server.pack.reader import SampleReader
    from infeed_server.pack.run import pack as run

    options.shard_bytes()  # its mistake first
    with index_progress(location.pipeline) as progress:
        reader = SampleReader(location, options, progress)
    plan, looks = make_plan(reader, location, options)
    plan.claim(destination)
    shards = part.shards(plan.shards)
    total = sum(len(plan.range(shard)) for shard in shards)
    with sample_progress(console, location.pipeline, total, "pack of") as advance:
        manifest = run(plan, destination, reader, workers, part, advance)
    if manifest is None:
        text = f"part {part.number}/{part.of} is finished, {len(shards)} of {plan.shards} shards"
        print_line(console, f"{text}; the part that ends last writes the manifest")
    else:
        _report(plan, destination, manifest, looks)


def _report(plan: Plan, destination: Destination, manifest: dict[str, Any], looks: Looks) -> None:
    from infeed_server.pack.run import serve_lines

    show = partial(print_line, console)
    size = manifest["bytes"] / 1e6
    show(
        f"{manifest['samples']:,} samples in {plan.shards} shards, {size:,.1f} MB: "
        f"{destination.path}"
    )
    for change, count in manifest["changes"].items():
        show(f"  {change}: {count:,} images")
    for kind in ("skipped", "kept"):
        bad = [one for shard in manifest["shards"] for one in shard[kind]]
        if bad:
            show(f"  bad samples, {kind}: {len(bad):,}; the manifest lists them")
        for one in bad[:_MAX_SHOWN]:
            show(f"    {one['sample']}, {one['file']}: {one['problem']}")
    for text in looks.lines():
        show(f"  {text}")
    print("\n".join(serve_lines(plan, destination)), file=sys.__stdout__, flush=True)


def _verify(location: Location, destination: Destination, workers: int) -> None:
    from infeed_server.pack import verify
    from infeed_server.pack.plan import make_plan
    from infeed_server.pack.reader import SampleReader
    from infeed_server.pack.run import verify as run

    manifest = verify.read_manifest(destination)
    options = verify.manifest_options(manifest)
    with index_progress(location.pipeline) as progress:
        reader = SampleReader(location, options, progress)
    plan, _ = make_plan(reader, location, options)
    plan.claim(destination)
    entries = manifest["shards"]
    with sample_progress(console, location.pipeline, plan.samples, "check of") as advance:
        defects = list(run(plan, destination, reader, workers, entries, advance))
    for defect in defects:
        print(defect, file=sys.__stdout__)
    if defects:
        print_line(
            console,
            f"{len(defects)} files differ; delete the .json of their shards in "
            f"{destination.path}, and run the same command without --verify",
        )
        raise typer.Exit(1)
    text = f"good: {manifest['samples']:,} samples in {plan.shards} shards are the source's"
    print(text, file=sys.__stdout__)


@contextmanager
def _location(source: str, pipeline: str | None, labels: str | None) -> Iterator[Location]:
    """Yields the definition of the source: the given one, or the one that `infeed init` writes."""
    from infeed_server.pipeline.load import load

    with tempfile.TemporaryDirectory() as folder:
        file, is_yaml = source, source.endswith((".yaml", ".yml"))
        if not is_yaml and (Path(source).exists() or ":" not in source):
            from infeed_server.starter.detect import starter_for

            starter = starter_for(source, Path(folder), labels)
            file = f"{folder}/pipelines.yaml"
            for name, text in {**starter.files, "pipelines.yaml": starter.text("", file)}.items():
                Path(folder, name).write_text(text, encoding="utf-8")
        elif labels is not None:
            raise ConfigError("--labels: the pipelines have labels already; leave it out")
        names = list(load(file))
        available = ", ".join(names)
        if pipeline is None and len(names) > 1:
            raise ConfigError(f"{source} has several pipelines; give --pipeline: {available}")
        if pipeline is not None and pipeline not in names:
            raise ConfigError(f"no pipeline {pipeline!r} in {source}; available: {available}")
        yield Location(file, pipeline or names[0])
