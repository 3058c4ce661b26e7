"""``sawtooth run``: record a training, then print why its GPU waits."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from sawtooth.app.commands.output import say
from sawtooth.app.commands.settings_file import set_parser_defaults
from sawtooth.ingest.capture import commands
from sawtooth.ingest.capture.command import launch
from sawtooth.ingest.errors import SawtoothError

MAX_ANSWER_S = 0.5  # A server must answer within this time. A server on this machine needs milliseconds.


def run(context: typer.Context) -> None:
    """Run a training and print why its GPU waits: `sawtooth run train.py --epochs 3`.

    `sawtooth run --help` lists the options.
    """
    parser = commands.run_parser()
    parser.add_argument("--data", type=Path, default=None, metavar="DIR", help="data folder that stores the run")
    set_parser_defaults(parser, "run")
    arguments = parser.parse_args(context.args)
    launched = commands.record(arguments, commands.command_in(parser, arguments))
    explain(launched, arguments.data)
    raise typer.Exit(launched.exit_code)


def explain(launched: launch.LaunchResult, data: Path | None) -> str | None:
    """Ingest the recording, print the verdict and return the run's id.

    The recorder's own messages are printed first. An error while ingesting or analysing changes neither the recording nor the
    training's exit code.
    """
    for sentence in launched.at_end:
        say(f"sawtooth: {sentence}", err=True)
    if launched.bundle is None:
        return None
    try:
        return _explain(launched, data)
    except SawtoothError as error:
        say(f"sawtooth: recorded into {launched.bundle}, but it could not be analysed: {error}", err=True)
    except ImportError as error:  # A checkout without its packages can record, but not analyse.
        say(
            f"sawtooth: recorded into {launched.bundle}. {error.name} is not installed here. Open the file on a machine with a complete Sawtooth installation.",
            err=True,
        )
    except Exception as error:  # A bug in Sawtooth must not change the training's exit code.
        say(f"sawtooth: recorded into {launched.bundle}; the analysis failed ({type(error).__name__}: {error}).", err=True)
    return None


def _explain(launched: launch.LaunchResult, data: Path | None) -> str:
    from sawtooth.analysis.compare.comparison import compare
    from sawtooth.analysis.compare.comparison_side import side_of
    from sawtooth.analysis.result_cache import result_of
    from sawtooth.analysis.store.library import Library
    from sawtooth.app import format as fmt
    from sawtooth.app.commands.names import data_folder
    from sawtooth.app.jobs.ingest_files import ingest_into_runs
    from sawtooth.app.reports.brief import lines
    from sawtooth.app.served_address import ServedAddress, answering_address
    from sawtooth.app.words.comparisons import comparison as words
    from sawtooth.app.words.comparisons import limits

    assert launched.bundle is not None
    folder = data_folder(data)
    ingested = ingest_into_runs(folder, [(launched.bundle, launched.bundle.name)])
    with Library(folder) as library:
        result = result_of(ingested.runs[0], library)
        last = result_of(ingested.runs[-1], library)
        change = compare(side_of([result], library), side_of([last], library)) if len(ingested.runs) > 1 else None
    for line in lines(result):
        say(line, err=True)
    for line in [words.headline(change), *limits.sentences(change)] if change is not None else ():
        say(f"sawtooth: {fmt.clean(line)}", err=True)
    say(f"sawtooth: recorded into {launched.bundle}.", err=True)
    served = answering_address(folder, MAX_ANSWER_S)
    data_option = f" --data {shlex.quote(str(data))}" if data else ""
    hint = "" if served is not None else f"   (after `sawtooth serve{data_option}`)"
    say(f"{(served or ServedAddress()).url(f'verdict?run={ingested.runs[0].id}')}{hint}", err=True)
    return ingested.runs[0].id
