"""The Efficiency screen: MFU and its factors, operators without tensor cores, the roofline."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import Column, columns_of
from sawtooth.analysis.tables import work
from sawtooth.app import format as fmt
from sawtooth.app.charts import efficiency as charts
from sawtooth.app.charts import roofline
from sawtooth.app.page import basis, cards, current_result, frame, panel
from sawtooth.app.page.parts import first_change
from sawtooth.app.theme import colour_of
from sawtooth.app.words import efficiency as words
from sawtooth.app.words import run as run_words
from sawtooth.ingest.manifest import Manifest

# Share of the time of products, convolutions and attention. A title does not mention less time without tensor cores.
MIN_MENTIONED_SHARE = 0.01
MAX_OPERATORS = 8  # Operators in the table. Each of the others takes about one percent of the time.
NO_OPERATOR = "no operator recorded"
HEADS = ("Part of a step", "Time per step", "Share", "Most of it", "What helps")
SHOWN_ON = {
    "idle": ("idle", "Every wait, and what causes it", ":material/hourglass_empty:"),
    "exposed_memcpy": ("idle", "Every copy that no computation overlaps", ":material/hourglass_empty:"),
    "exposed_comm": ("communication", "Which collectives are exposed", ":material/lan:"),
    "other_kernels": ("work", "Which kernels these are", ":material/memory:"),
    "clock": ("telemetry", "Clocks, power, and why clocks are lowered", ":material/monitoring:"),
}


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("How well the GPU works is not known.")
        current_result.what_is_missing(result)
        return
    if current_result.untrusted(result, rank):
        return
    _mfu(rank, result)
    _under_the_roof(rank)
    _without_tensor_cores(rank)
    _facts(result.manifest)


def _mfu(rank: RankResult, result: RunResult) -> None:
    mfu = rank.metrics["mfu"]
    if mfu.value is None:
        cards.headline("MFU is not known for this run.", mfu.why_missing)
        first_change.show(result)
        missing, code = words.what_mfu_lacks(rank.metrics)
        cards.empty_state(missing, "MFU is the FLOPs of a step ÷ its time ÷ the GPU's dense 16-bit peak.", code, "python")
        return
    head = st.container(key="efficiency_head", gap="small")
    head.empty()  # A container without any element has no height.
    chosen = basis.switch(rank)
    metrics = basis.metrics(rank, chosen)
    parts = words.peak_parts(rank, metrics, chosen if chosen in columns_of(rank) else columns_of(rank)[0])
    with head:
        sentence, below = words.mfu_headline(metrics, parts, profiled=chosen == "recorded" and basis.differs(rank))
        cards.headline(sentence, " ".join(filter(None, (below, words.rates(metrics)))) or None)
        first_change.show(result)
    if doubt := words.mfu_doubt(metrics):
        cards.caution(doubt)
    _what_takes_a_step(rank, parts, chosen, words.clock_of_the_peak(metrics))


def _what_takes_a_step(rank: RankResult, parts: list[charts.PeakPart], column: Column, clock: str) -> None:
    """Show what separates a step from the GPU's peak, and a link to the screen about the largest part.

    ``clock`` is a sentence for the explanation of the method.
    """
    step_ms = sum(part.ms for part in parts)
    cells = [("A step", fmt.duration_ms(step_ms), fmt.share(1.0), "", "")]
    for part in parts:
        largest, helps = words.largest_share(rank, part, column, _slowest(rank) if part.key == "slow_kernels" else "")
        cells.append((part.label, fmt.part_ms(step_ms, part.ms), fmt.share(part.share), largest, helps))
    waits = {part.key: words.largest_wait(rank, part.key, column) for part in parts}
    causes = {key: colour_of(wait[0].owner, wait[0].cause) for key, wait in waits.items() if wait is not None}
    drawn = charts.bars(parts, causes, dark=frame.is_dark())
    # The first row is the useful part, the last row the whole step.
    cards.show_ranked_table(HEADS, cells[::-1], drawn[::-1], "What keeps a step from the GPU's peak")
    if differs := words.why_idle_differs(rank, parts, column):
        cards.small(differs)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        panel.explain(charts.METRICS, f"{charts.METHOD} {clock}".strip(), "peak-parts")
        with st.popover("Table", type="tertiary", icon=":material/table_rows:", key="peak-parts-rows"):
            panel.table(charts.table(parts), charts.COLUMNS, "peak-parts")
        most_lost = words.largest_loss(parts)
        if most_lost is not None and most_lost.key in SHOWN_ON:
            name, label, icon = SHOWN_ON[most_lost.key]
            frame.link(name, label, icon=icon)


def _slowest(rank: RankResult) -> str:
    """Return the product, convolution or attention that exceeds its minimum time most, or ""."""
    rows = _roofline(rank)
    rows = rows[rows["flops"] > 0] if len(rows) else rows
    if rows.empty:
        return ""
    return roofline.named(rows.iloc[0])


def _facts(manifest: Manifest) -> None:
    """Let the viewer enter facts that only they know, and store them in the run."""
    facts = manifest.facts
    labels = {
        "flops_per_step": "FLOPs per step",
        "parameters": "Parameters",
        "tokens_per_step": "Tokens per step",
        "step_time_ms": "Step time without the profiler, ms",
        "peak_tflops": "Dense 16-bit peak, TFLOP/s",
    }
    with st.expander("Your measurements", icon=":material/edit:"):
        cards.small("Saved with the run and used instead of estimates. Empty fields are ignored.")
        with st.form("facts", border=False):
            with st.grid(min_column_width=215, gap="small"):
                entered = {
                    key: st.number_input(
                        label, value=getattr(facts, key), min_value=0.0, format="%g", key=f"fact-{manifest.id}-{key}"
                    )
                    for key, label in labels.items()
                }
            saved = st.form_submit_button("Save")
    if saved:
        current_result.keep_facts(manifest, {key: value or None for key, value in entered.items()})
        st.rerun()


@st.cache_data(max_entries=64, show_spinner="Looking at tensor cores …", hash_funcs={RankResult: current_result.key_of})
def _tensor_cores(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank, sums=True) as view:
        return work.missed_tensor_cores(view)


@st.cache_data(
    max_entries=64, show_spinner="Placing operators on the roofline …", hash_funcs={RankResult: current_result.key_of}
)
def _roofline(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank, sums=True) as view:
        return work.roofline(view)


def _without_tensor_cores(rank: RankResult) -> None:
    rows, per = _tensor_cores(rank), run_words.per_step_or_window(rank)
    if rows.empty:
        cards.title("No matrix product, convolution or attention ran")
        cards.small("Only these can use tensor cores.")
        return
    missed = rows[rows["without_ms"] > 0]
    without_ms, total_ms = float(missed["without_ms"].sum()), float(rows[["without_ms", "with_ms"]].sum().sum())
    hardly = without_ms <= MIN_MENTIONED_SHARE * total_ms
    cards.title(words.without_tensor_cores(without_ms, hardly, per))
    reasons = list(dict.fromkeys(missed["why"]))
    if len(reasons) == 1 and not hardly:
        cards.text(str(reasons[0]))
    several = len(reasons) > 1 or (hardly and len(reasons) > 0)
    time, head = ("without_ms", "Without tensor cores") if len(missed) else ("with_ms", "On tensor cores")
    shown = (missed if len(missed) else rows).nlargest(MAX_OPERATORS, time)
    cells = [
        (
            NO_OPERATOR if pd.isna(row["operator"]) else str(row["operator"]),
            fmt.clean(str(row["shapes"]), 80),
            fmt.duration_ms(row[time]),
            *([str(row["why"])] if several else []),
        )
        for row in shown.to_dict("records")
    ]
    heads = ("Operator", "Input shapes", f"{head}, {per}", *(["Why"] if several else []))
    with st.expander("Their times") if hardly else st.container():  # The list is folded if little is wrong.
        cards.table(heads, cells, "Products, convolutions and attention by time")
        if (len(missed) or len(rows)) > MAX_OPERATORS:
            cards.small(f"The {len(shown)} longest of {len(missed) or len(rows)}; the CSV has all.")
        panel.csv_button(rows, "tensor-cores")


def _under_the_roof(rank: RankResult) -> None:
    rows = _roofline(rank)
    gpu = rank.gpu
    if gpu is None or gpu.bandwidth_bytes_per_s is None:
        which = (
            f"The hardware table has no bandwidth of {fmt.clean(rank.device_name, 60)}"
            if rank.device_name
            else "The recording does not name its GPU"
        )
        cards.empty_state("There is no roofline to compare with.", f"{which}, so the limit of its operators is not known.")
        return
    if rows.empty:
        cards.empty_state(
            "No operator can be placed under the roofline.",
            "The shapes of operators are not recorded, or a compiled region or CUDA graph hides them.",
            "with torch.profiler.profile(record_shapes=True) as profiler:",
            "python",
        )
        return
    first = rows.iloc[0]
    title = (
        f"{fmt.clean(str(first['name']), 40)} could gain most: it takes {fmt.duration_ms(float(first['opportunity_ms']))} {run_words.per_step_or_window(rank)} longer than "
        f"the roofline allows ({fmt.share(float(first['attained_share']))} attained)"
    )
    peaks = {d: gpu.peaks[d] for d in dict.fromkeys(rows.loc[rows["flops"] > 0, "dtype"].dropna()) if d in gpu.peaks}
    unused = {"bf16": gpu.peaks["bf16"]} if peaks and "bf16" in gpu.peaks and gpu.peaks["bf16"] > max(peaks.values()) else {}
    chart, *moving = roofline.roofline(
        rows, peaks, gpu.bandwidth_bytes_per_s, title, dark=frame.is_dark(), unit=run_words.unit_of(rank), unused=unused
    )
    with st.container(key="roofline_part"):  # On a narrow page the table is above the charts; a phone shows only the table.
        panel.show(chart, "roofline", second=moving[0] if moving else None)
        cards.table(
            roofline.LARGEST_HEADS,
            roofline.largest(rows),
            f"The operators with the largest gains, times {run_words.per_step_or_window(rank)}",
            figures=True,
        )


main()
