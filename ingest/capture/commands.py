"""The options of `sawtooth run`, and the command line of the recorder when it is installed alone."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sawtooth.ingest.capture import loader
from sawtooth.ingest.capture.attach import command as attaching
from sawtooth.ingest.capture.command import launch
from sawtooth.ingest.capture.command.parts import output_file
from sawtooth.ingest.capture.packing import name_from_file
from sawtooth.ingest.capture.process_rank import member_of_job
from sawtooth.ingest.loop.command import default_run_name
from sawtooth.ingest.sampler import __main__ as sampler
from sawtooth.ingest.sampler.prometheus import parse_address
from sawtooth.installation import recorder_version

USAGE = """usage: sawtooth run [OPTIONS] COMMAND …      record a training command: telemetry, step marks, a short profile
       sawtooth attach PID [OPTIONS]              record a training that already runs
       sawtooth sample [OPTIONS] [-- COMMAND …]   sample the GPUs into a file, or send the samples to a dashboard
       sawtooth loader MODULE:NAME [OPTIONS]      time a DataLoader without the training

This is only the recorder. `pip install sawtooth` (from the repository) installs the dashboard that explains recordings."""

NOT_SERVED = "--metrics cannot use {address} ({why}), so this run serves no metrics. Choose another port next time."


def run_parser() -> argparse.ArgumentParser:
    """Return the parser of `sawtooth run`."""
    parser = argparse.ArgumentParser(
        prog="sawtooth run",
        allow_abbrev=False,  # Otherwise an option of the training, such as --n, could match a longer option of this command.
        description="Run a training without changes to its code, and record telemetry, the time of each step and a short profile.",
    )
    attaching.add_recording_options(parser, "the loop's start")
    parser.add_argument(
        "--every", type=int, default=0, metavar="N", help="profile again every N steps, to compare early and late steps"
    )
    parser.add_argument(
        "--samples", type=float, default=None, metavar="N", help="samples per step, to report samples per second"
    )
    parser.add_argument("--flops", type=float, default=None, metavar="F", help="FLOPs per step of one GPU, to report MFU")
    parser.add_argument(
        "--push",
        default=None,
        metavar="URL",
        help="send samples and steps to this dashboard during the training (push token: SAWTOOTH_PUSH_TOKEN)",
    )
    parser.add_argument(
        "--metrics",
        default=None,
        metavar="[HOST]:PORT",
        help="serve step times and GPU samples for Prometheus at /metrics",
    )
    parser.add_argument(
        "--progress",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="print step times (median, 95th percentile) at this interval",
    )
    parser.add_argument(
        "--tensorboard",
        type=Path,
        default=None,
        metavar="DIR",
        help="write step times for TensorBoard, every ten seconds",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="also write the profiled steps' GPU memory allocations to FILE-memory.pickle; slows these steps",
    )
    parser.add_argument(
        "-m", nargs=argparse.REMAINDER, dest="module", metavar="MODULE", help="run a Python module: -m rl.train --epochs 3"
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="the training: train.py --epochs 3, python -m …, torchrun …",
    )
    return parser


def command_in(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[str]:
    """Return the command to run; exit with the usage if there is none."""
    command: list[str] = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    command = ["-m", *arguments.module, *command] if arguments.module else command
    if not command:
        parser.error("name the command to run, such as train.py --epochs 3")
    return command


def record(arguments: argparse.Namespace, command: Sequence[str]) -> launch.LaunchResult:
    """Run and record ``command`` with the parsed options."""
    member = member_of_job()  # If each rank is recorded separately, each rank has its own name and file.
    name = arguments.name or name_from_file(arguments.output) or default_run_name(command)
    stem = "-".join(filter(None, (name.replace("/", "-"), (member or "").replace(" ", ""))))
    default = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.sawtooth"
    metrics = _metrics_address(arguments.metrics, sampled=not arguments.no_sample) if arguments.metrics else None
    bundle, message = output_file(arguments.output or Path(default), default)
    if message:
        print(f"sawtooth: {message}", file=sys.stderr, flush=True)
    steps = 0 if arguments.no_profile else arguments.steps
    options = launch.RunOptions(
        steps=steps,
        after_s=arguments.after,
        sample=not arguments.no_sample,
        every=arguments.every,
        time_loader=not arguments.no_loader,
        stacks=arguments.stacks,
        memory=arguments.memory,
        samples=arguments.samples,
        flops=arguments.flops,
        push=arguments.push,
        metrics=metrics,
        progress_s=arguments.progress,
        scalars=arguments.tensorboard,
    )
    return launch.run(command, bundle, options, name=f"{name}, {member}" if member else name)


def _metrics_address(address: str, *, sampled: bool) -> str | None:
    """Return ``address`` if metrics can be served there; else print a message and return None.

    Exits with code 2 if ``address`` is not an address, or if no sampler runs that could serve metrics.
    """
    if not sampled:
        sys.exit(_usage_error("--metrics needs the sampler: remove --no-sample."))
    try:
        host, port = parse_address(address)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (ValueError, OverflowError):
        sys.exit(_usage_error(f"--metrics needs a port, such as 127.0.0.1:9101, not {address!r}."))
    except OSError as error:
        print(f"sawtooth: {NOT_SERVED.format(address=address, why=error.strerror)}", file=sys.stderr, flush=True)
        return None
    return address


def _usage_error(sentence: str) -> int:
    print(f"sawtooth run: {sentence}", file=sys.stderr)
    return 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the recorder's command line; `run` exits with the training's exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["sample"]:
        sys.exit(sampler.main(words[1:]))
    if words[:1] == ["loader"]:
        sys.exit(loader.main(words[1:]))
    if words == ["--version"]:
        print(f"sawtooth-recorder {recorder_version()}")
        sys.exit(0)
    if words[:1] == ["attach"]:
        parsed = attaching.attach_parser().parse_args(words[1:])
        attached = attaching.record(parsed)
        if parsed.json:
            print(json.dumps(attaching.result_as_json(attached)))
        launched: launch.LaunchResult = attached
    elif words[:1] == ["run"]:
        parsed = (parser := run_parser()).parse_args(words[1:])
        launched = record(parsed, command_in(parser, parsed))
    else:
        print(USAGE)
        sys.exit(0 if words[:1] in ([], ["-h"], ["--help"]) else 2)
    for sentence in launched.at_end:
        print(f"sawtooth: {sentence}", file=sys.stderr)
    if launched.bundle is not None:
        print(f"sawtooth: wrote {launched.bundle}. Drop it on the dashboard, or `sawtooth ingest` it there.", file=sys.stderr)
    sys.exit(launched.exit_code)


if __name__ == "__main__":
    main()
