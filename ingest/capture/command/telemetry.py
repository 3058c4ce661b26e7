"""Start and end of the sampler of a recorded command, with sentences about missing telemetry."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture import sampler_process

STEP_RATE_FILE = "pace.json"  # The step rate for the Live page.


def start_sampler(folder: Path, push: str | None, name: str, *options: str) -> tuple[Any, list[str]]:
    """Start the sampler; return its process (None if it failed) and messages about missing telemetry.

    If the dashboard at ``push`` cannot be reached, the sampler starts without pushing.
    """
    options = ("--pace", str(folder / STEP_RATE_FILE), "--name", name, *options)
    missing: list[str] = []
    if push is not None:
        sampler, why = _start_process(folder, sampler_process.MAX_PUSHING_START_S, *options, "--push", push)
        if sampler is not None:
            print(f"sawtooth: watch it at {push.rstrip('/')}/live", file=sys.stderr, flush=True)
            return sampler, []
        missing.append(f"Not pushed to {push}: {why}")
    sampler, why = _start_process(folder, sampler_process.MAX_START_S, *options)
    if sampler is not None and (why_no_gpu := sampler_process.why_no_gpu_samples(folder / "live")) is not None:
        missing.append(f"No GPU telemetry: {why_no_gpu}")
    if why:
        missing.append(f"No telemetry: {why}")
    return sampler, missing


def _start_process(folder: Path, limit_s: float, *options: str) -> tuple[Any, str]:
    """Return the sampler's process and "", or None and the reason why the sampler did not start."""
    live = folder / "live"
    try:
        sampler = sampler_process.start_sampler(live, *options)
    except OSError as error:
        return None, f"the sampler did not start ({error})."
    if sampler_process.wait_for_start(sampler, live, limit_s=limit_s):
        return sampler, ""
    why = sampler_process.stop_and_write(sampler, live, folder / "telemetry.jsonl")
    return None, _first_sentence(why or "the sampler ended at once")


def missing_telemetry(reason: str | None) -> list[str]:
    """Return the message that telemetry is missing because of ``reason``; [] if ``reason`` is None."""
    return [f"No telemetry: {_first_sentence(reason)}"] if reason else []


def _first_sentence(text: str) -> str:
    # The other sentences are for users who start the sampler themselves.
    return f"{text.partition('. ')[0].rstrip('.')}."


def write_session(sampler: Any, folder: Path) -> str | None:
    """Stop the sampler and write its session into one file; return the reason if this failed, else None."""
    try:
        return sampler_process.stop_and_write(sampler, folder / "live", folder / "telemetry.jsonl")
    except OSError as error:
        (folder / "telemetry.jsonl").unlink(missing_ok=True)
        return f"the samples cannot be written to {folder.parent} ({error.strerror})."
