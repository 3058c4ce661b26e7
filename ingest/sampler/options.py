"""Options of ``sawtooth sample``, and checks of their combinations."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sawtooth.ingest.sampler.push import refuse_url

SHORTEST_INTERVAL_S = 0.02  # Power is the signal that changes fastest; the driver samples it every 20 ms.


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    p = argparse.ArgumentParser(
        prog="sawtooth sample",
        description="Sample the GPUs of this machine beside a training job: utilization, tensor activity, power, clocks, memory.",
    )
    p.add_argument("--interval", type=float, default=0.1, metavar="SECONDS", help="time between samples (default 0.1)")
    p.add_argument(
        "-o",
        "--output",
        "--out",
        dest="out",
        type=Path,
        default=None,
        metavar="DIR|FILE.jsonl",
        help="where sessions go (default: the data folder's live/), or a file of plain lines that sawtooth ingest reads",
    )
    p.add_argument("--gpus", default=None, metavar="LIST", help="indices or UUIDs, separated by commas (default: all)")
    p.add_argument("--seconds", type=float, default=None, help="stop after this long (default: until interrupted)")
    p.add_argument(
        "--format",
        choices=("session", "jsonl"),
        default=None,
        help="jsonl: plain lines into the file --out, or - for stdout",
    )
    p.add_argument("--name", default="", help="a name for the session")
    p.add_argument("--watch-pid", type=int, default=None, metavar="PID", help="stop when this process ends")
    p.add_argument("--push", default=None, metavar="URL", help="send the session to a dashboard, acknowledged and resumable")
    p.add_argument(
        "--token-file",
        type=Path,
        default=None,
        metavar="FILE",
        help="the dashboard's push token (default: SAWTOOTH_PUSH_TOKEN)",
    )
    p.add_argument("--token", default=None, help="the push token; all users of this host can see it in the list of processes")
    p.add_argument(
        "--resume-push", type=Path, default=None, metavar="DIR", help="send the rest of an earlier session, then stop"
    )
    p.add_argument(
        "--prometheus", default=None, metavar="[HOST]:PORT", help="serve /metrics (on loopback unless a host is given)"
    )
    p.add_argument(
        "--replay", type=Path, default=None, metavar="FILE", help="play a recorded session or JSON lines instead of sampling"
    )
    p.add_argument("--speed", type=float, default=1.0, help="with --replay: this many times as fast")
    p.add_argument("--loop", action="store_true", help="with --replay: repeat until stopped")
    p.add_argument("--copies", type=int, default=1, help="with --replay: pretend to have this many times the GPUs")
    p.add_argument("--no-processes", action="store_true", help="do not record which processes use the GPUs")
    p.add_argument(
        "--no-host", action="store_true", help="do not sample the host: cores, loader workers, memory, disks, network"
    )
    p.add_argument("--pace", dest="step_rate", type=Path, default=None, help=argparse.SUPPRESS)  # `sawtooth run` writes it
    p.add_argument(
        "--follow", type=int, action="append", default=[], help=argparse.SUPPRESS
    )  # `sawtooth attach` gives processes
    p.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="run this command and sample until it ends; everything after it belongs to the command",
    )
    return p


def push_token_of(options: argparse.Namespace) -> str | None:
    """Return the push token from --token, else from --token-file (first word), else from the environment.

    Raises OSError or UnicodeDecodeError if the file cannot be read.
    """
    if options.token:
        print("sawtooth sample: --token can be read in the list of processes. SAWTOOTH_PUSH_TOKEN cannot.", file=sys.stderr)
        return str(options.token)
    if options.token_file is not None:
        return next(iter(options.token_file.read_text(encoding="ascii").split()), None)
    return os.environ.get("SAWTOOTH_PUSH_TOKEN") or os.environ.get("SAWTOOTH_TOKEN")


def format_of(out: Path | None) -> str:
    """Return the default output format: ``jsonl`` if ``out`` ends with .jsonl, else ``session``."""
    return "jsonl" if out is not None and out.suffix == ".jsonl" else "session"


def refusal(options: argparse.Namespace) -> str | None:
    """Return a sentence that says which options are invalid, None if all are valid."""
    if options.interval < SHORTEST_INTERVAL_S:
        return f"--interval must be at least {SHORTEST_INTERVAL_S:g} s: nothing NVML reports changes faster."
    if not options.speed > 0 or options.copies < 1:
        return "--speed and --copies must be above 0."
    if options.format == "jsonl" and options.out is not None and not options.out.parent.is_dir():
        return f"There is no folder {str(options.out.parent)!r} to write the samples to."
    if options.push is None:
        return "--resume-push needs --push URL." if options.resume_push else None
    if not options.token:
        return "--push needs the push token, in SAWTOOTH_PUSH_TOKEN or --token-file; the dashboard's Live page shows it."
    if options.format != "session":
        return "--push sends sessions: leave --format out."
    return refuse_url(options.push)
