"""The command line in this process."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from sawtooth.app.cli import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))
