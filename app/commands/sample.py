"""``sawtooth sample``: replace this process by the sampler, which has its own options."""

from __future__ import annotations

import os
import sys

import typer

from sawtooth.ingest import children


def sample(context: typer.Context) -> None:
    """Sample the GPUs beside a training, into a file or to a dashboard (--push).

    sawtooth sample --help lists the options.
    """
    command = children.command("sawtooth.ingest.sampler", *context.args)
    if sys.platform == "win32":  # On Windows, exec would detach the process from the console.
        import subprocess

        raise SystemExit(subprocess.call(command, env=children.environment()))
    # The sampler replaces this process, so that it gets all signals and its exit code is the command's.
    os.execve(sys.executable, command, children.environment())
