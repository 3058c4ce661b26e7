"""``sawtooth loader``: the loader's benchmark in a process of its own, where the training's modules are imported."""

from __future__ import annotations

import subprocess

import typer

from sawtooth.ingest import children


def loader(context: typer.Context) -> None:
    """Time a DataLoader by itself: samples per second for numbers of workers, and how many feed the GPU."""
    command = children.command("sawtooth.ingest.capture.loader", *context.args)
    raise SystemExit(subprocess.call(command, env=children.environment()))
