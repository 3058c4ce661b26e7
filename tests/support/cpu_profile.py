"""A real CPU profile of a function, without a recording."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def operators_of(step: Callable[[], Any], folder: Path) -> list[dict[str, Any]]:
    """Run ``step`` under torch.profiler and return the events of its operators by thread and start.

    Each event has ``parent``, the index of the operator around it, or -1 without one.
    """
    path = folder / "trace.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
            step()
        profiler.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if e.get("cat") == "cpu_op"]
    events.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    open_ops: list[int] = []
    for index, event in enumerate(events):
        while open_ops and not _encloses(events[open_ops[-1]], event):
            open_ops.pop()
        event["parent"] = open_ops[-1] if open_ops else -1
        open_ops.append(index)
    return events


def _encloses(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return outer["tid"] == inner["tid"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-9
