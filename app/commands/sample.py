"""``sawtooth sample``: the sampler in a process of its own, with its own options."""

from __future__ import annotations

import os
import sys

import typer

from sawtooth.ingest import children


def sample(context: typer.Context) -> None:
    """Sample the GPUs next to a training job, here or pushed to a dashboard (--push).

    sawtooth sample --help lists the options.
    """
    # -P: Python must not import a folder called ingest in the training project
    command = children.command("sawtooth.ingest.sampler", *context.args)
    if sys.platform == "win32":  # exec would detach from the console on Windows
        import subprocess

        raise SystemExit(subprocess.call(command, env=children.environment()))
    os.execve(
        sys.executable, command, children.environment()
    )  # replaces this process, so that signals and the exit code are the sampler's
