"""The command `infeed pack`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infeed.cli import PREPARE
from infeed.cli.model_options import with_models
from infeed.cli.output import print_lines
from infeed.shared.errors import ConfigError
from infeed_server.cli.console import console, index_progress, sample_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import defer_tensorflow, load_tensorflow
from infeed_tools.pack.options import Location, PackOptions, Work, find_part

if TYPE_CHECKING:
    from infeed_tools.pack.destination import Destination
    from infeed_tools.pack.images import Looked
    from infeed_tools.pack.plan import Plan

_SHOWN = 10
"""Bad samples that the summary lists."""


app = typer.Typer()


@app.command(rich_help_panel=PREPARE)
@with_models
def pack(
    source: Annotated[
        str,
        typer.Argument(
            help="YAML file of pipelines, module:attr in Python, or data that init recognises."
        ),
    ],
    dest: Annotated[str, typer.Argument(help="Folder for the shards, or a store's URL.")],
    options: PackOptions,
    work: Work,
    pipeline: Annotated[
        str | None,
        typer.Option(help="Pipeline whose source to pack. Default: the only one."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE[:[NAMES:]COLUMN]", help="Labels of images, as for infeed init."),
    ] = None,
) -> None:
    """Writes a source as a few large TFRecords.

    Applies no transforms. Run the same command again to continue after an interruption. Any number
    of workers and parts writes the same bytes; the one that finds all shards finished writes
    infeed-pack.json.

    \b
    Examples:
      infeed pack data/photos packed
      infeed pack pipelines.yaml packed --pipeline train --short-side 256
      infeed pack data/photos gs://bucket/photos --workers 16 --part 0/8
    """
    set_up_logging()
    defer_tensorflow()
    part = find_part(work.part, work.parts, os.environ)
    options.shard_bytes()  # reports its mistakes before the slow part
    if Path(dest).resolve() == Path(source).resolve():
        raise ConfigError(f"DEST {dest} is the source's folder; give a new or empty folder")
    from infeed_server.processes import cgroup
    from infeed_tools.pack.destination import Destination

    destination, count = Destination(dest), work.workers or cgroup.cpu_count()
    # The user's code may print, and standard output is for the result.
    with redirect_stdout(sys.stderr), _location(source, pipeline, labels) as location:
        load_tensorflow()
        from infeed_tools.pack.plan import make_plan
        from infeed_tools.pack.reader import open_reader
        from infeed_tools.pack.run import Run

        with index_progress(location.pipeline) as progress:
            reader = open_reader(location, options, progress)
        plan, images = make_plan(reader, location, options)
        plan.claim(destination)
        shards = part.shards(plan.shards)
        total = sum(len(plan.range(shard)) for shard in shards)
        with sample_progress(console, location.pipeline, total, "pack of") as advance:
            run = Run(plan, destination, reader, count, advance)
            try:
                manifest = run.pack(part)
            except KeyboardInterrupt:
                print_lines(console, "interrupted; run the command again to pack the other shards")
                raise
    if manifest:
        _print_summary(plan, destination, manifest, images)
    else:
        text = f"part {part.number}/{part.of} is finished, {len(shards)} of {plan.shards} shards"
        print_lines(console, f"{text}; the last part to finish will write the manifest")


def _print_summary(
    plan: Plan,
    destination: Destination,
    manifest: dict[str, Any],
    images: Looked,
) -> None:
    from infeed_tools.pack.images import figures
    from infeed_tools.pack.shards import serve_lines

    size = f"{manifest['bytes'] / 1e6:,.1f} MB"
    lines = [f"{manifest['samples']:,} samples in {plan.shards} shards, {size}: {destination.path}"]
    lines += [f"  {change}: {count:,} images" for change, count in manifest["changes"].items()]
    for kind in ("skipped", "kept"):
        if bad := [one for shard in manifest["shards"] for one in shard[kind]]:
            lines.append(f"  bad samples, {kind}: {len(bad):,}; the manifest lists them")
        lines += [f"    {one['sample']}, {one['file']}: {one['problem']}" for one in bad[:_SHOWN]]
    for line in (*lines, *(f"  {text}" for text in figures(images))):
        print_lines(console, line)
    path = destination.path_of(plan.name(None))
    print("\n".join(serve_lines(plan.fields, path)), flush=True)


@contextmanager
def _location(source: str, pipeline: str | None, labels: str | None) -> Iterator[Location]:
    """Yields the definition of the source: the given one, or the one that `infeed init` writes."""
    from infeed_server.pipeline.load import load
    from infeed_server.storage.files import is_remote

    with tempfile.TemporaryDirectory() as temporary:
        # So far from the data that paths become absolute, for clear errors.
        folder = Path(temporary, "init", "written")
        file, is_yaml = source, source.endswith((".yaml", ".yml"))
        if not is_yaml and (is_remote(source) or Path(source).exists() or ":" not in source):
            from infeed_tools.init.detect import starter_for
            from infeed_tools.init.listing import UnclearError

            try:
                starter = starter_for(source, folder, labels=labels)
            except UnclearError as error:
                choices = [[f"--{n} {v}" for n, v in choice.items()] for choice, _ in error.choices]
                options = " or ".join(map(" ".join, choices))
                how = f"pack the file that infeed init writes with {options}"
                raise ConfigError(f"{error.message}: {how}") from None
            file = f"{folder}/pipelines.yaml"
            folder.mkdir(parents=True)
            for name, text in {**starter.files, "pipelines.yaml": starter.text("", file)}.items():
                (folder / name).write_text(text, encoding="utf-8")
        elif labels is not None:
            raise ConfigError("--labels: the pipelines already have labels; omit it")
        names = list(load(file))
        name = pipeline or names[0]
        if name not in names or (pipeline is None and len(names) > 1):
            problem = f"has no pipeline {name!r}" if pipeline else "has several pipelines"
            available = ", ".join(names)
            raise ConfigError(f"{source} {problem}; give --pipeline, one of: {available}")
        yield Location(file, name)
