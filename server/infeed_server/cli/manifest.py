"""The command `infeed manifest`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infeed.shared.printable import printable_lines
from infeed_server.cli.console import console, sample_progress
from infeed_server.cli.logs import set_up_logging
from infeed_server.imports import loading_tensorflow
from infeed_server.storage.files import read_bytes, write_atomically

if TYPE_CHECKING:
    from infeed_server.run.manifest import RunData
    from infeed_server.sources.content import Contents

VERIFY = "verify"
"""The word in place of RUN with which a manifest is verified."""


def manifest(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|verify",
            help="A JSON file with a cursor, PIPELINE, or PIPELINE@SEED; or the word verify.",
        ),
    ],
    file: Annotated[
        str | None, typer.Argument(metavar="[MANIFEST]", help="With verify: the manifest.")
    ] = None,
    *,
    pipelines: Annotated[str, typer.Option(help="A YAML file, or module:attr in Python.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. Default: the output.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Batch size of a run without segments. Default: the pipeline's."),
    ] = None,
    world_size: Annotated[
        int, typer.Option(min=1, help="World size of a run without segments.")
    ] = 1,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="ID|NAME", help="With verify: whether and when this sample was in the run."
        ),
    ] = None,
    kept: Annotated[
        bool,
        typer.Option(
            "--kept", help="With verify: trust the kept hashes of files with the same times."
        ),
    ] = False,
) -> None:
    """States what a run was made from, for any tool to sign, or verifies it.

    The manifest is an in-toto statement with the run's segments, the hashes of
    its sources, removed samples and versions. Hashes are those that
    infeed check --scan has kept, or all samples are read.

    With verify, all is computed again from the data, and what differs is named;
    the exit status is then 1.

    \b
    Examples:
      infeed manifest run.json --pipelines pipelines.yaml --out run.intoto.json
      infeed manifest verify run.intoto.json --pipelines pipelines.yaml
      infeed manifest verify run.intoto.json --pipelines pipelines.yaml --sample cat/12.jpg
    """
    set_up_logging()
    if (file is not None) != (run == VERIFY):
        raise typer.BadParameter("verify and MANIFEST belong together", param_hint="MANIFEST")
    with redirect_stdout(sys.stderr):  # what the user's code prints is not the result
        if file is not None:
            lines, is_good = _verify(file, pipelines, sample, kept=kept)
        else:
            made = _make(run, pipelines, batch_size, world_size)
    if file is not None:
        for line in lines:
            typer.echo(printable_lines(line))
        raise typer.Exit(not is_good)
    if out is None:
        sys.stdout.write(made.decode())
    else:
        write_atomically(out, methodcaller("write", made))


def _make(name: str, pipelines: str, batch_size: int | None, world_size: int) -> bytes:
    from infeed.cursor import Cursor
    from infeed.run import load_run

    run = load_run(name)
    with loading_tensorflow():
        from infeed_server.pipeline.load import load
        from infeed_server.run.manifest import make, open_run
        from infeed_server.sources.content import keep, kept

    definitions = load(pipelines)
    cursor, seed = run.cursor, run.seed
    if cursor is None:
        if seed is None:
            seed = definitions[run.pipeline].shuffle.seed if run.pipeline in definitions else 0
        cursor = Cursor(run.pipeline, "", seed, 0)
    with open_run(cursor, definitions, batch_size, world_size) as opened:
        contents = kept(opened.opened.source)
        if contents is None:
            contents = _read(opened)
            keep(opened.opened.source, contents)
        return make(opened, cursor.fingerprint, contents)


def _verify(file: str, pipelines: str, sample: str | None, *, kept: bool) -> tuple[list[str], bool]:
    with loading_tensorflow():
        from infeed_server.pipeline.load import load
        from infeed_server.run.verify_manifest import verify
        from infeed_server.sources import content

    def read(run: RunData) -> Contents:
        return (content.kept(run.opened.source) if kept else None) or _read(run)

    lines, is_good = verify(read_bytes(file), load(pipelines), read, sample)
    return [*lines, f"{file}: {'good' if is_good else 'not proven'}"], is_good


def _read(run: RunData) -> Contents:
    from infeed_server.run.manifest import read_contents

    source, name = run.opened.source, run.cursor.pipeline
    with sample_progress(console, name, len(source), "hashes of") as advance:
        return read_contents(source, range(len(source)), advance)
