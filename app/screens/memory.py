"""The Memory screen: allocated and reserved memory, its peak, and driver calls in the steady steps."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.compare.sweep import BATCH, value_of
from sawtooth.analysis.dumps.held_memory import DeviceMemory
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import memory
from sawtooth.analysis.tables.memory import MemoryUse
from sawtooth.analysis.telemetry import series
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import memory as charts
from sawtooth.app.charts.poster_bars import StepBar
from sawtooth.app.charts.telemetry import lanes
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.parts import first_change, memory_snapshot, sweep_curve, telemetry_strip
from sawtooth.app.page.runs import compare_choice
from sawtooth.app.page.timeline import views
from sawtooth.app.words import advice, savings
from sawtooth.app.words import telemetry as words

poster = templates.pieces("poster.html")
FIND = """from sawtooth.capture import find_batch_size

sizes = find_batch_size(
    train_step, batch,
    changes=[model, optimizer],
    path="batches.sawtooth",
)"""
MEMORY = "mem_used_bytes"
MAX_NAMED_OPERATORS = 2  # Operators that the title names.


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if (snapshot := memory_snapshot.of(result.manifest, rank)) is not None:
        _of_snapshot(snapshot, rank, result)
        return
    if rank is None:
        _in_use(result, "No GPU work was recorded, so GPU memory use is not known.")
        current_result.what_is_missing(result)
        return
    use = _use(rank)
    if use is None:
        _in_use(result, "The run's memory use is not recorded.")
    else:
        _use_over_time(use, rank, result)
    if use is not None:
        _driver(rank)
        _batches(result)
        return
    _driver(rank)
    snapshot_place, batches_place = panel.two_columns()
    with snapshot_place:
        cards.title("What uses the peak?")
        cards.text(
            "A memory snapshot shows it by purpose, module and code line. In your own profiler, `profile_memory=True` shows it by operator."
        )
        st.code("sawtooth run --memory train.py", language=None, wrap_lines=True)
    with batches_place:
        _batches(result)


def _of_snapshot(snapshot: DeviceMemory, rank: RankResult | None, result: RunResult) -> None:
    memory_snapshot.headline(snapshot)
    _what_to_do(result)
    memory_snapshot.show(snapshot, _capacity(rank) if rank is not None else None)
    if rank is not None:
        _driver(rank)
    _batches(result)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _capacity(rank: RankResult) -> float | None:
    with current_result.opened(rank) as view:
        return memory.capacity_bytes(view)


def _batches(result: RunResult) -> None:
    """Show the effect of other batch sizes, measured or predicted, and how to try them."""
    sweep = compare_choice.sweep_of([result.manifest], BATCH) if value_of(result.manifest, BATCH) else None
    if sweep is not None and (len(sweep.points) > 1 or sweep.predicted):
        sweep_curve.show(sweep)
    if not result.manifest.batches:
        cards.title("Which batch size fits, and which is fastest?")
        cards.text(
            "Try sizes on the training machine. The call survives running out of memory, restores the training's state, and writes a file that this page can show."
            + (
                ""
                if sweep is not None
                else " To predict other sizes from this trace, give the run a tag such as batch_size=64."
            )
        )
        st.code(FIND, language="python", wrap_lines=True)


@st.cache_resource(max_entries=24, show_spinner="Reading allocations …", hash_funcs={RankResult: current_result.key_of})
def _use(rank: RankResult) -> MemoryUse | None:
    with current_result.opened(rank) as view:
        return memory.memory_use(view)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _calls(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return memory.driver_calls(view)


def _what_to_do(result: RunResult) -> None:
    """Show the changes that are about memory, each with its prediction."""
    about = [(number, finding) for number, finding in advice.numbered(result) if "memory" in finding.explains.topics]
    larger = next(filter(None, (savings.larger_batches(f.evidence) for _, f in about)), None)
    changes = [
        numbered_finding
        for numbered_finding in about
        if "spare_memory" not in numbered_finding[1].explains.topics or larger is None
    ]
    first_change.show_with(changes, result)
    if larger is not None:
        cards.title(larger[0])
        cards.text(" ".join(larger[1]))


def _use_over_time(use: MemoryUse, rank: RankResult, result: RunResult) -> None:
    origin = views.extent(rank.recording_id).start_ns
    peak = fmt.memory(use.peak_bytes)
    time_of_peak = fmt.duration_ns(use.peak_ns - origin)
    if use.relative:
        cards.headline(
            f"Tensors add {peak} at the peak{_main_holder(rank)}.",
            f"The peak is {time_of_peak} into the recording. The trace records changes only, so memory allocated before it started is not included.",
        )
    else:
        cards.headline(
            f"Tensors take at most {peak}{_of_the_gpu(rank)}{_main_holder(rank)}.",
            f"The peak is {time_of_peak} into the recording.",
        )
    pairs = [("Peak allocated", peak)]
    if use.reserved_peak_bytes is not None:
        pairs.append(("Peak reserved", fmt.memory(use.reserved_peak_bytes)))
    if use.unused_share is not None:
        pairs.append(("Reserved and unused at best", fmt.share(max(use.unused_share, 0.0))))
    pairs += [("Allocations", fmt.count(use.allocations)), ("Allocated in total", fmt.memory(use.allocated_bytes))]
    cards.numbers(pairs)
    _holders(rank, use)
    _what_to_do(result)
    title = f"Allocated memory peaks at {peak}"
    steps = charts.step_spans(rank.steps, origin)
    panel.show(charts.over_time(use.table(origin), title, steps, dark=frame.is_dark(), relative=use.relative), "memory")


def _of_the_gpu(rank: RankResult) -> str:
    _, capacity = _memory_by_operator(rank)
    return f" of the GPU's {fmt.memory(capacity)}" if capacity else ""


def _main_holder(rank: RankResult) -> str:
    """Return a suffix that names the operator with most of the peak; "" if no operator is known."""
    rows, _ = _memory_by_operator(rank)
    if rows.empty:
        return ""
    first = rows.iloc[0]
    if first["operator"] == memory.ALLOCATED_BEFORE:
        return f": {fmt.share(first['share'])} was {memory.ALLOCATED_BEFORE}"
    return f": {fmt.share(first['share'])} by {_operator_name(first['operator'])}"


def _operator_name(operator: object) -> str:
    return fmt.clean(str(operator), 60).removeprefix("aten::")


def _holders(rank: RankResult, use: MemoryUse) -> None:
    """Show which operators allocated the peak, as a bar relative to the GPU's memory and as a table."""
    rows, capacity = _memory_by_operator(rank)
    if rows.empty:
        return
    named_rows = rows[rows["operator"] != memory.ALLOCATED_BEFORE].head(MAX_NAMED_OPERATORS)
    if len(named_rows) > 1:
        names = " and ".join(_operator_name(name) for name in named_rows["operator"])
        cards.title(f"{names} allocated {fmt.share(float(named_rows['share'].sum()))} of the peak")
    bars = poster.bar(StepBar("peak", fmt.memory(use.peak_bytes), "100%", tuple(charts.holders(rows, dark=frame.is_dark()))))
    if capacity:
        bars += poster.bar(charts.of_the_gpu(use.peak_bytes, capacity, dark=frame.is_dark()))
    st.html(bars)
    unit, of_unit = ("GiB", 2.0**30) if use.peak_bytes >= 2**30 else ("MiB", 2.0**20)
    shown = rows.assign(size=rows["bytes"] / of_unit, place=range(1, len(rows) + 1))
    panel.table(
        shown,
        {
            "place": "No.",
            "operator": "Allocated by",
            "size": f"{unit} at the peak",
            "share": "Share",
            "allocations": "Allocations",
        },
        "peak",
    )


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _memory_by_operator(rank: RankResult) -> tuple[pd.DataFrame, float | None]:
    with current_result.opened(rank) as view:
        use = memory.memory_use(view)
        return memory.operators_at_peak(view, use) if use is not None else pd.DataFrame(), memory.capacity_bytes(view)


def _driver(rank: RankResult) -> None:
    calls = _calls(rank)
    if calls.empty:
        cards.small(
            "No call in the steady steps allocates or frees device memory: the memory that the allocator has reserved is enough."
        )
        return
    unit = "per step" if len(rank.counted) else "in the recorded time"
    cards.title(f"Calls that allocate or free device memory take {fmt.duration_ms(float(calls['ms'].sum()))} {unit}")
    per = " per step" if len(rank.counted) else ""
    panel.table(calls, {"call": "Call", "calls": f"Calls{per}", "ms": f"ms{per}"}, "driver-calls")
    cards.small(
        "A steady run has no such calls. To avoid them, set PYTORCH_ALLOC_CONF=expandable_segments:True, or keep shapes the same from step to step."
    )


def _in_use(result: RunResult, unknown: str) -> None:
    """Show the memory in use according to telemetry; without such telemetry, ``unknown`` is the headline."""
    telemetry = telemetry_strip.telemetry_of(result, result.lead.device if result.lead is not None else None)
    summary = telemetry_strip.summary_of(result, telemetry) if telemetry is not None else None
    if telemetry is None or summary is None or not summary.memory_peak_bytes:
        cards.headline(unknown)
        return
    peak, total = summary.memory_peak_bytes, summary.memory_total_bytes
    cards.headline(words.in_use(peak, total), words.MEMORY_BASIS)
    if total:
        with st.container(key="memory_bar"):
            st.html(poster.bar(charts.of_the_gpu(peak, total, dark=frame.is_dark())))
    _what_to_do(result)
    facts = series.facts(telemetry, MEMORY)
    title = words.use_over_time(facts["p5"], facts["p95"])
    if title is None:
        return
    chart = lanes(
        telemetry, title, f"{title}.", origin_ns=telemetry.span.start_ns, dark=frame.is_dark(), quantities=[MEMORY], height=170
    )
    if total:  # The room above the line is the memory that stays free.
        chart.figure.update_yaxes(range=[0, total / 2**30])
    panel.show(chart, "memory-in-use")


main()
