"""``sawtooth loader``: time a DataLoader in a process that can import the training's modules."""

from __future__ import annotations

import subprocess

import typer

from sawtooth.ingest import children


def loader(context: typer.Context) -> None:
    """Time a DataLoader alone: samples per second by number of workers, and the number that the GPU needs."""
    command = children.command("sawtooth.ingest.capture.loader", *context.args)
    raise SystemExit(subprocess.call(command, env=children.environment()))
