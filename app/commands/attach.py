"""``sawtooth attach``: record a training that already runs, then print why its GPU waits."""

from __future__ import annotations

from pathlib import Path

import typer

from sawtooth.app.commands.output import say
from sawtooth.app.commands.run import explain
from sawtooth.app.commands.settings_file import set_parser_defaults
from sawtooth.app.printable import json_text
from sawtooth.ingest.capture.attach import command


def attach(context: typer.Context) -> None:
    """Record a training that already runs. `sawtooth attach --help` lists the options."""
    parser = command.attach_parser()
    parser.add_argument("--data", type=Path, default=None, metavar="DIR", help="data folder that stores the run")
    set_parser_defaults(parser, "attach")
    arguments = parser.parse_args(context.args)
    launched = command.record(arguments)
    run = explain(launched, arguments.data)
    if arguments.json:
        say(json_text(command.result_as_json(launched, run), 1))
    raise typer.Exit(launched.exit_code)
