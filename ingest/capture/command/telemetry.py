"""Start and end of the sampler of a recorded command, with sentences about missing telemetry."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture import sampler_process

STEP_RATE_FILE = "pace.json"  # the step rate for the Live page


def start_sampler(folder: Path, push: str | None, name: str, *more: str) -> tuple[Any, list[str]]:
    """Start the sampler; return it (None if it failed) and sentences about missing telemetry.

    If the dashboard at ``push`` cannot be reached, the sampler starts without it. ``more`` are options of the sampler.
    """
    options = ("--pace", str(folder / STEP_RATE_FILE), "--name", name, *more)
    missing: list[str] = []
    if push is not None:
        sampler, trouble = _started(folder, sampler_process.MAX_PUSHING_START_S, *options, "--push", push)
        if sampler is not None:
            print(f"sawtooth: watch it at {push.rstrip('/')}/live", file=sys.stderr, flush=True)
            return sampler, []
        missing = [f"Not pushed to {push}: {trouble}"]
    sampler, trouble = _started(folder, sampler_process.MAX_START_S, *options)
    if sampler is not None and (without := sampler_process.why_no_gpu_samples(folder / "live")) is not None:
        missing.append(f"No GPU telemetry: {without}")
    return sampler, [*missing, *([f"No telemetry: {trouble}"] if trouble else [])]


def _started(folder: Path, limit_s: float, *options: str) -> tuple[Any, str]:
    live = folder / "live"
    try:
        sampler = sampler_process.start_sampler(live, *options)
    except OSError as error:
        return None, f"the sampler did not start ({error})."
    if sampler_process.wait_for_start(sampler, live, limit_s=limit_s):
        return sampler, ""
    trouble = sampler_process.take_session(sampler, live, folder / "telemetry.jsonl")
    return None, _first_sentence(trouble or "the sampler ended at once")


def missing_telemetry(why_not: str | None) -> list[str]:
    """Return the sentence that telemetry is missing, with the reason ``why_not``; [] without a reason."""
    return [f"No telemetry: {_first_sentence(why_not)}"] if why_not else []


def _first_sentence(text: str) -> str:
    return f"{text.partition('. ')[0].rstrip('.')}."  # The other sentences are for users who start the sampler themselves.


def write_session(sampler: Any, folder: Path) -> str | None:
    """Stop the sampler and write its session into one file; return why that failed, None on success."""
    try:
        return sampler_process.take_session(sampler, folder / "live", folder / "telemetry.jsonl")
    except OSError as error:
        (folder / "telemetry.jsonl").unlink(missing_ok=True)
        return f"the samples cannot be written to {folder.parent} ({error.strerror})."
