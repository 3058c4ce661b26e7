"""The peak of a memory snapshot by purpose, module or code line, and the memory over time."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import streamlit as st

from sawtooth.analysis.dumps.held_memory import DeviceMemory
from sawtooth.analysis.dumps.stored_memory import memory_of
from sawtooth.analysis.run.model import RankResult
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import memory as charts
from sawtooth.app.charts.poster_bars import StepBar
from sawtooth.app.page import cards, controls, frame, panel
from sawtooth.app.reports import memory_snapshot as words
from sawtooth.ingest.manifest import Manifest

poster = templates.pieces("poster.html")
By = Literal["category", "module", "stack"]
GROUPS: dict[By, str] = {"category": "What it is for", "module": "Module", "stack": "Code"}


def of(manifest: Manifest, rank: RankResult | None) -> DeviceMemory | None:
    """Return the memory of a rank's GPU from the run's snapshots; None if none is of this GPU."""
    refs = [ref.id for ref in manifest.recordings if ref.kind == "memory"]
    if not refs:
        return None
    number, device = (rank.rank, rank.device) if rank is not None else (None, None)
    return _read(str(frame.data_folder().root), tuple(refs), number, device, manifest)


@st.cache_resource(max_entries=16, show_spinner="Reading the memory snapshot …")
def _read(root: str, refs: tuple[str, ...], rank: int | None, device: int | None, _manifest: Manifest) -> DeviceMemory | None:
    return memory_of(_manifest, frame.library(), rank, device)


def headline(memory: DeviceMemory) -> None:
    """Show what uses most of the peak as the headline, and details below it."""
    first, *more = words.details(memory)
    cards.headline(words.headline(memory), first)
    for line in more:
        cards.small(line)


def show(memory: DeviceMemory, capacity_bytes: float | None) -> None:
    """Show what uses the peak as a bar and a table, and the memory in use over time."""
    if not memory.peak_bytes:
        return
    by = controls.choice("Peak by", GROUPS, "peak_by")
    holders = {"category": memory.categories, "module": memory.modules, "stack": memory.stacks}[by]
    rows = pd.DataFrame(
        [(holder.name or words.UNKNOWN, holder.size, holder.size / memory.peak_bytes, holder.blocks) for holder in holders],
        columns=["operator", "bytes", "share", "blocks"],
    )
    bars = poster.bar(StepBar("peak", fmt.memory(memory.peak_bytes), "100%", tuple(charts.holders(rows, dark=frame.is_dark()))))
    if capacity_bytes:
        bars += poster.bar(charts.of_the_gpu(memory.peak_bytes, capacity_bytes, dark=frame.is_dark()))
    st.html(bars)
    unit, of_unit = ("GiB", 2.0**30) if memory.peak_bytes >= 2**30 else ("MiB", 2.0**20)
    panel.table(
        rows.assign(size=rows["bytes"] / of_unit, place=range(1, len(rows) + 1)),
        {"place": "No.", "operator": GROUPS[by], "size": f"{unit} at the peak", "share": "Share", "blocks": "Blocks"},
        f"snapshot-{by}",
    )
    if memory.curve:
        curve = pd.DataFrame(memory.curve, columns=["at_s", "allocated_bytes"])
        curve["at_ms"] = 1e3 * curve["at_s"]
        at = "" if memory.peak_at_s is None else f", {fmt.duration_ms(1e3 * memory.peak_at_s)} into the snapshot"
        chart = charts.over_time(
            curve[["at_ms", "allocated_bytes"]],
            f"Memory in use peaks at {fmt.memory(memory.peak_bytes)}{at}",
            [],
            dark=frame.is_dark(),
            relative=False,
        )
        panel.show(chart, "snapshot")
