"""How well the busy time works: MFU and its factors, operators that miss tensor cores, the roofline."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import work
from sawtooth.app import format as fmt
from sawtooth.app.charts import efficiency as charts
from sawtooth.app.charts import roofline
from sawtooth.app.page import basis, cards, current, frame, panel
from sawtooth.app.words import efficiency as words
from sawtooth.app.words import run as run_words
from sawtooth.ingest.manifest import Manifest

LISTED = 8  # operators in the table: below them a shape is a percent of the time
NO_OPERATOR = "no operator recorded"
SHOWN_ON = {
    "mfu_factor_busy": ("idle", ":material/hourglass_empty:"),
    "mfu_factor_flop_kernels": ("kernels", ":material/memory:"),
    "mfu_factor_clock": ("telemetry", ":material/monitoring:"),
}


def main() -> None:
    """Show the page."""
    result = current.run_result()
    rank = current.chosen_rank(result)
    if rank is None:
        cards.headline("How well the GPU works is not known.")
        current.what_is_missing(result)
        return
    _mfu(rank)
    _under_the_roof(rank)
    _missed(rank)
    _facts(result.manifest)


def _mfu(rank: RankResult) -> None:
    mfu = rank.metrics["mfu"]
    if mfu.value is None:
        cards.headline("MFU is not known for this run.", mfu.why_missing)
        missing, code = words.what_mfu_lacks(rank.metrics)
        cards.empty_state(missing, "MFU is the FLOPs of a step ÷ its time ÷ the GPU's dense 16-bit peak.", code, "python")
        return
    head = st.container()
    chosen = basis.switch(rank)
    metrics = basis.metrics(rank, chosen)
    known = [key for key in charts.FACTORS if metrics[key].value is not None]
    lowest = min(known, key=lambda key: metrics[key].value or 0.0) if known else None
    with head:
        sentence = words.mfu_sentence(metrics, lowest)
        profiled = chosen == "recorded" and basis.differs(rank)
        cards.headline(f"Under the profiler {sentence[0].lower()}{sentence[1:]}" if profiled else sentence)
    with st.grid(min_column_width=215, gap="small"):
        for key in words.utilizations(metrics):
            cards.metric_card(key, metrics[key], badge=False, about=True)
    if doubt := words.mfu_doubt(metrics):
        cards.caution(doubt)
    if lowest is not None:
        panel.show(charts.factors(metrics, words.factor_title(metrics, known), dark=frame.dark()), "mfu-factors")
        _raise(lowest)
        for key in known:
            if (metrics[key].value or 0.0) > 1:
                cards.small(f"{METRICS[key].label}: {' '.join(metrics[key].notes)}")


def _raise(factor: str) -> None:
    """Say what raises a factor, as a link where another screen shows it."""
    if factor in SHOWN_ON:
        name, icon = SHOWN_ON[factor]
        frame.link(name, charts.RAISES[factor], icon=icon)
    else:
        cards.text(charts.RAISES[factor])


def _facts(manifest: Manifest) -> None:
    """Let the viewer give what only they know, and keep it with the run."""
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
            saved = st.form_submit_button("Keep")
    if saved:
        current.keep_facts(manifest, {key: value or None for key, value in entered.items()})
        st.rerun()


@st.cache_data(max_entries=64, show_spinner="Looking at tensor cores …", hash_funcs={RankResult: current.key_of})
def _tensor_cores(rank: RankResult) -> pd.DataFrame:
    with current.opened(rank) as view:
        return work.missed_tensor_cores(view)


@st.cache_data(max_entries=64, show_spinner="Placing operators on the roofline …", hash_funcs={RankResult: current.key_of})
def _placed(rank: RankResult) -> pd.DataFrame:
    with current.opened(rank) as view:
        return work.roofline(view)


def _missed(rank: RankResult) -> None:
    rows, per = _tensor_cores(rank), run_words.per(rank)
    if rows.empty:
        cards.title("No matrix product, convolution or attention ran")
        cards.small("Only these can use tensor cores.")
        return
    missed = rows[rows["without_ms"] > 0]
    if missed.empty:
        cards.title("Every matrix product, convolution and attention uses tensor cores")
    else:
        total = fmt.duration_ms(float(missed["without_ms"].sum()))
        cards.title(f"Products, convolutions and attention run {total} {per} without tensor cores")
    time, head = ("without_ms", "Without tensor cores") if len(missed) else ("with_ms", "On tensor cores")
    shown = (missed if len(missed) else rows).nlargest(LISTED, time)
    cells = [
        (
            NO_OPERATOR if pd.isna(row["operator"]) else str(row["operator"]),
            fmt.clean(str(row["shapes"]), 80),
            fmt.duration_ms(row[time]),
            *([str(row["why"])] if len(missed) else []),
        )
        for row in shown.to_dict("records")
    ]
    heads = ("Operator", "Input shapes", f"{head}, {per}", *(["Why"] if len(missed) else []))
    with st.container() if len(missed) else st.expander("Their times"):  # where nothing is wrong, nobody need read them
        cards.table(heads, cells, "Products, convolutions and attention by time")
        if len(rows) > LISTED:
            cards.small(f"The {LISTED} longest of {len(missed) or len(rows)}; the CSV has all.")
        panel.csv_button(rows, "tensor-cores")


def _under_the_roof(rank: RankResult) -> None:
    rows = _placed(rank)
    gpu = rank.gpu
    if gpu is None or gpu.bandwidth_bytes_per_s is None:
        which = (
            f"The hardware table has no bandwidth of {fmt.clean(rank.device_name, 60)}"
            if rank.device_name
            else "The recording does not name its GPU"
        )
        cards.empty_state(
            "There is no roofline to compare with.", f"{which}, so it is not known what its operators could reach."
        )
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
        f"{fmt.clean(str(first['name']), 40)} could gain most: it takes {fmt.duration_ms(float(first['opportunity_ms']))} {run_words.per(rank)} more than "
        f"the roofline allows, {fmt.share(float(first['attained_share']))} attained"
    )
    peaks = {d: gpu.peaks[d] for d in dict.fromkeys(rows.loc[rows["flops"] > 0, "dtype"].dropna()) if d in gpu.peaks}
    panel.show(
        roofline.roofline(rows, peaks, gpu.bandwidth_bytes_per_s, title, dark=frame.dark(), unit=run_words.unit_of(rank)),
        "roofline",
    )
    cards.table(
        roofline.LARGEST_HEADS,
        roofline.largest(rows),
        f"The operators with the largest gains, times {run_words.per(rank)}",
        figures=True,
    )


main()
