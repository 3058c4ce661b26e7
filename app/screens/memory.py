"""Device memory: allocated, reserved, the peak, and calls to the driver in the steady part."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis import memory
from analysis.memory import MemoryUse
from analysis.run_result import RankResult, RunResult
from app import cards, current, frame, panel
from app import format as fmt
from app import timeline_views as views
from app.charts import memory as charts

RECORD = "with torch.profiler.profile(profile_memory=True, record_shapes=True) as profiler:"


def main() -> None:
    """Show the page."""
    result = current.run_result()
    rank = current.chosen_rank(result)
    if rank is None:
        cards.headline("How much memory the GPU held is not known from a trace of it.")
        _telemetry(result)
        current.what_is_missing(result)
        return
    use = _use(rank.recording_id, rank.device)
    if use is None:
        peak = result.metrics["peak_memory_bytes"]
        if peak.value is not None:
            cards.headline(
                f"The GPU held at most {fmt.reading('peak_memory_bytes', peak)}, as telemetry saw it.", " ".join(peak.notes)
            )
        else:
            cards.headline("How much memory the run held is not recorded.")
        cards.empty_state(
            "The trace has no allocations.",
            "With them this page shows what tensors hold over a step, where the peak is, and what the allocator keeps unused.",
            RECORD,
            "python",
        )
    else:
        _use_over_time(use, rank)
    _driver(rank)


@st.cache_resource(max_entries=24, show_spinner="Reading allocations …")
def _use(recording_id: str, device: int) -> MemoryUse | None:
    with frame.library().open(recording_id) as recording:
        return memory.memory_use(recording, device)


@st.cache_data(max_entries=64, show_spinner=False)
def _calls(recording_id: str, device: int, counted: int) -> pd.DataFrame:
    with frame.library().open(recording_id) as recording:
        return memory.driver_calls(recording, device, counted)


def _use_over_time(use: MemoryUse, rank: RankResult) -> None:
    origin = views.extent(rank.recording_id).start_ns
    peak = fmt.bytes_(use.peak_bytes)
    where = fmt.duration_ns(use.peak_ns - origin)
    if use.relative:
        cards.headline(
            f"Tensors add {peak} at the peak, {where} into the recording.",
            "The trace tells changes only, so what was there before is not in it.",
        )
    else:
        cards.headline(f"Tensors hold {peak} at the peak, {where} into the recording.")
    pairs = [("Peak allocated", peak)]
    if use.reserved_peak_bytes is not None:
        pairs.append(("Peak reserved", fmt.bytes_(use.reserved_peak_bytes)))
    if use.unused_share is not None:
        pairs.append(("Reserved and unused at best", fmt.share(max(use.unused_share, 0.0))))
    pairs += [("Allocations", fmt.count(use.allocations)), ("Allocated in all", fmt.bytes_(use.allocated_bytes))]
    cards.numbers(pairs)
    title = f"Allocated memory peaks at {peak}"
    steps = charts.step_spans(rank.steps, origin)
    panel.show(charts.over_time(use.table(origin), title, steps, dark=frame.dark(), relative=use.relative), "memory")


def _driver(rank: RankResult) -> None:
    calls = _calls(rank.recording_id, rank.device, len(rank.counted))
    if calls.empty:
        cards.title("The allocator never goes to the driver in the steady window")
        cards.small("No call there allocates or frees device memory: what was reserved is enough.")
        return
    unit = "a step" if len(rank.counted) else "in the recorded time"
    cards.title(f"Calls that allocate or free device memory take {fmt.duration_ms(float(calls['ms'].sum()))} {unit}")
    per = " per step" if len(rank.counted) else ""
    panel.table(calls, {"call": "Call", "calls": f"Calls{per}", "ms": f"ms{per}"}, "driver-calls")
    cards.small(
        "In a steady run there are none: set PYTORCH_ALLOC_CONF=expandable_segments:True, or keep shapes the same from step to step."
    )


def _telemetry(result: RunResult) -> None:
    held = [t for t in result.telemetry.devices if t.memory_peak_bytes]
    for told in held:
        total = f" of {fmt.bytes_(told.memory_total_bytes)}" if told.memory_total_bytes else ""
        cards.text(f"Telemetry saw at most {fmt.bytes_(told.memory_peak_bytes or 0.0)}{total} in use on device {told.device}.")


main()
