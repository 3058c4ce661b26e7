"""Options of ``sawtooth sample``, and checks of their combinations."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from sawtooth.ingest.sampler.push import invalid_url_reason

MIN_INTERVAL_S = 0.02  # Nothing changes faster than power, which the driver samples every 20 ms.


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="sawtooth sample",
        allow_abbrev=False,  # Otherwise an option of the command, such as --n, could match a longer option of the sampler.
        description="Sample the GPUs of this machine beside a training job: utilization, tensor activity, power, clocks, memory.",
    )
    parser.add_argument("--interval", type=float, default=0.1, metavar="SECONDS", help="time between samples (default 0.1)")
    parser.add_argument(
        "-o",
        "--output",
        "--out",  # The option's older name.
        dest="out",
        type=Path,
        default=None,
        metavar="DIR|FILE.jsonl",
        help="folder for sessions (default: live/ in the data folder), or a .jsonl file, which sawtooth ingest reads",
    )
    parser.add_argument("--gpus", default=None, metavar="LIST", help="indices or UUIDs, separated by commas (default: all)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time (default: when interrupted)")
    parser.add_argument(
        "--format",
        choices=("session", "jsonl"),
        default=None,
        help="session: a folder for the dashboard; jsonl: JSON lines to --out (- for stdout)",
    )
    parser.add_argument("--name", default="", help="a name for the session")
    parser.add_argument("--watch-pid", type=int, default=None, metavar="PID", help="stop when this process ends")
    parser.add_argument("--push", default=None, metavar="URL", help="upload the session to a dashboard while it is recorded")
    parser.add_argument(
        "--token-file",
        type=Path,
        default=None,
        metavar="FILE",
        help="the dashboard's push token (default: SAWTOOTH_PUSH_TOKEN)",
    )
    parser.add_argument(
        "--token", default=None, help="the push token; all users of this host can see it in the list of processes"
    )
    parser.add_argument(
        "--resume-push", type=Path, default=None, metavar="DIR", help="send the rest of an earlier session, then stop"
    )
    parser.add_argument(
        "--prometheus",
        default=None,
        metavar="[HOST]:PORT",
        help="serve /metrics for Prometheus (without HOST: for this machine only)",
    )
    parser.add_argument(
        "--replay", type=Path, default=None, metavar="FILE", help="replay a recorded session or .jsonl file instead of sampling"
    )
    parser.add_argument(
        "--speed", type=float, default=1.0, help="with --replay: speed, as a multiple of the recorded speed (default 1)"
    )
    parser.add_argument("--loop", action="store_true", help="with --replay: repeat until stopped")
    parser.add_argument("--copies", type=int, default=1, help="with --replay: show each GPU this many times")
    parser.add_argument("--no-processes", action="store_true", help="do not record which processes use the GPUs")
    parser.add_argument(
        "--no-host", action="store_true", help="do not sample the host: cores, loader workers, memory, disks, network"
    )
    # Internal: the file with the step rate, which `sawtooth run` writes.
    parser.add_argument("--pace", dest="step_rate", type=Path, default=None, help=argparse.SUPPRESS)
    # Internal: ids of processes to follow, from `sawtooth attach`.
    parser.add_argument("--follow", type=int, action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="run this command and sample until it ends; everything after it belongs to the command",
    )
    return parser


def find_push_token(options: argparse.Namespace) -> str | None:
    """Return the push token from --token, else from --token-file (first word), else from the environment.

    In the environment, SAWTOOTH_PUSH_TOKEN comes before SAWTOOTH_TOKEN, the login token, which also allows pushing. Raises OSError or
    UnicodeDecodeError if the file cannot be read.
    """
    if options.token:
        return str(options.token)
    if options.token_file is not None:
        return next(iter(options.token_file.read_text(encoding="ascii").split()), None)
    return os.environ.get("SAWTOOTH_PUSH_TOKEN") or os.environ.get("SAWTOOTH_TOKEN")


def default_format(out: Path | None) -> str:
    """Return the default output format: ``jsonl`` if ``out`` ends with .jsonl, else ``session``."""
    return "jsonl" if out is not None and out.suffix == ".jsonl" else "session"


def invalid_reason(options: argparse.Namespace) -> str | None:
    """Return the error message for invalid options; None if all options are valid.

    ``format`` and ``token`` must have their final values, from ``default_format`` and ``find_push_token``.
    """
    if options.interval < MIN_INTERVAL_S:
        return f"--interval must be at least {MIN_INTERVAL_S:g} s, because no value of NVML changes faster."
    if math.isnan(options.speed) or options.speed <= 0 or options.copies < 1:
        return "--speed and --copies must be above 0."
    if options.format == "jsonl" and options.out is not None and not options.out.parent.is_dir():
        return f"The folder {str(options.out.parent)!r} for the samples does not exist. Create it, or choose another --output."
    if options.push is None and options.resume_push:
        return "--resume-push needs --push URL."
    return None if options.push is None else _invalid_push(options)


def _invalid_push(options: argparse.Namespace) -> str | None:
    if not options.token:
        return "--push needs the push token in SAWTOOTH_PUSH_TOKEN or --token-file. The dashboard's Live page shows the token."
    if options.format != "session":
        return "--push needs --format session, which is the default."
    return invalid_url_reason(options.push)
