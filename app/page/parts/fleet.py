"""All sampled GPUs of a run: one row per GPU, the worst first."""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.findings.sampled.fleet import Fleet, FleetRow, fleet_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import fleet as drawing
from sawtooth.app.page import cards, frame, panel

MAX_ROWS = 16  # Rows of the table; the chart's own table has all.
HEADS = ("GPU", "What the samples show", "In use", "SM clock", "Power", "Temperature", "Most memory")


def show(result: RunResult) -> None:
    """Show the GPUs side by side; shows nothing for a single GPU."""
    recordings = ",".join(ref.id for ref in result.manifest.telemetry)
    fleet = _fleet(f"{frame.data_folder().root} {result.manifest.id} {recordings} {result.telemetry.clocks}", result)
    if fleet is None:
        return
    panel.show(drawing.chart(fleet, dark=frame.is_dark()), "fleet")
    first = fleet.rows[:MAX_ROWS]
    names = drawing.without_folder([row.label for row in first])
    cells = [(fmt.clean(name, 40), *_cells(row)) for name, row in zip(names, first, strict=True)]
    known = [place for place in range(len(HEADS)) if any(row[place] not in ("", fmt.MISSING) for row in cells)]
    cards.table([HEADS[i] for i in known], [[row[i] for i in known] for row in cells], "The GPUs side by side")
    if len(fleet.rows) > MAX_ROWS:
        cards.small(f"{fmt.count(len(fleet.rows) - MAX_ROWS)} more GPUs are in the table of the chart.")


@st.cache_data(max_entries=24, show_spinner="Reading all GPUs …")
def _fleet(key: str, _result: RunResult) -> Fleet | None:
    return fleet_of(_result, frame.library())


def _cells(row: FleetRow) -> tuple[str, ...]:
    sampled, means = row.sampled, row.sampled.means

    def shown(column: str, unit: str) -> str:
        return fmt.in_unit(means[column], unit) if column in means else fmt.MISSING

    memory = sampled.memory_peak_bytes
    return (
        fmt.spaced(row.finding.title) if row.finding is not None else "",
        fmt.in_unit(row.in_use_pct, "percent") if row.in_use_pct is not None else fmt.MISSING,
        shown("clock_sm_mhz", "MHz"),
        shown("power_w", "W"),
        shown("temp_c", "°C"),
        fmt.memory(memory) if memory is not None else fmt.MISSING,
    )
