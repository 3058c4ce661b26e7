"""Command line of `sawtooth attach`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.attach.attach import AttachOptions, AttachResult, attach
from sawtooth.ingest.capture.attach.targets import AttachError
from sawtooth.ingest.capture.command import launch, settings
from sawtooth.ingest.capture.packing import name_from_file


def add_recording_options(parser: argparse.ArgumentParser, first: str) -> None:
    """Add the options of both `sawtooth run` and `sawtooth attach`.

    The time before the profile counts from ``first``.
    """
    parser.add_argument(
        "-o", "--output", type=Path, default=None, metavar="FILE", help="path of the recording, a .sawtooth file"
    )
    parser.add_argument("--name", default="", help="name of the run (default: the name of -o's FILE, else of the script)")
    parser.add_argument("--no-profile", action="store_true", help="record no profile")
    parser.add_argument("--no-sample", action="store_true", help="record no telemetry")
    parser.add_argument("--no-loader", action="store_true", help="do not time the DataLoader's workers")
    parser.add_argument(
        "--steps", type=int, default=launch.PROFILED_STEPS, metavar="N", help="number of steps to profile (default %(default)s)"
    )
    parser.add_argument(
        "--after",
        type=float,
        default=settings.DEFAULT_AFTER_S,
        metavar="SECONDS",
        help=f"shortest time from {first} to the profile; the loop must also be steady (default %(default)g)",
    )
    parser.add_argument(
        "--stacks", action="store_true", help="also profile Python calls, to report source lines; slows the profiled steps"
    )


def attach_parser() -> argparse.ArgumentParser:
    """Return the parser of `sawtooth attach`."""
    parser = argparse.ArgumentParser(
        prog="sawtooth attach",
        description="Record a training that already runs, and print why its GPU waits. The training continues. With Python 3.14 or newer, "
        "Sawtooth times its steps and profiles some of them, like `sawtooth run`. With older versions, it only samples the GPU and the process.",
    )
    parser.add_argument(
        "pid", type=int, metavar="PID", help="the training's process, or that of its launcher (torchrun, accelerate, a shell)"
    )
    add_recording_options(parser, "the first marked step")
    parser.add_argument(
        "--seconds",
        type=float,
        default=None,
        help="duration of the recording (default: until the profile is taken; 60 without a profile)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the run's id, the file, what remains in the process and what is missing, as JSON",
    )
    return parser


def result_as_json(launched: AttachResult, run: str | None = None) -> dict[str, Any]:
    """Return the result of a recording as data for JSON; ``run`` is its id in a data folder."""
    file = str(launched.bundle) if launched.bundle is not None else None
    return {"run": run, "file": file, "stays": launched.stays, "missing": launched.missing}


def record(arguments: argparse.Namespace) -> AttachResult:
    """Attach with the parsed options; exit with code 2 if that is not possible."""
    options = AttachOptions(
        name=arguments.name or name_from_file(arguments.output),
        steps=0 if arguments.no_profile else arguments.steps,
        after_s=arguments.after,
        seconds=arguments.seconds,
        sample=not arguments.no_sample,
        time_loader=not arguments.no_loader,
        stacks=arguments.stacks,
    )
    try:
        return attach(arguments.pid, arguments.output, options)
    except AttachError as error:
        print(f"sawtooth attach: {error}", file=sys.stderr)
        sys.exit(2)
