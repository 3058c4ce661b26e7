"""``sawtooth sample``: the sampler in a process of its own, with its own options."""

from __future__ import annotations

import os
import sys

import typer

from sawtooth.ingest import children


def sample(context: typer.Context) -> None:
    """Sample the GPUs beside a training job, here or pushed to a dashboard (--push); sawtooth sample --help lists the options."""
    # -P: a folder called ingest in the training project must not be taken for ours
    command = children.command("sawtooth.ingest.sampler", *context.args)
    if sys.platform == "win32":  # exec there detaches from the console
        import subprocess

        raise SystemExit(subprocess.call(command, env=children.environment()))
    os.execve(
        sys.executable, command, children.environment()
    )  # in place of this process: signals and the exit code are the sampler's
