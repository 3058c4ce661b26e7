"""The Modules screen: GPU time of nn.Modules, forward and backward, as a tree, singly, and by class."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.findings_by_kernel import about_modules
from sawtooth.analysis.findings.recorded.phases import work_by_phase
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.tables import kernels as kernel_tables
from sawtooth.analysis.tables import modules as module_tables
from sawtooth.analysis.units import significant
from sawtooth.app import format as fmt
from sawtooth.app.charts import modules as charts
from sawtooth.app.page import cards, controls, current_result, frame, panel
from sawtooth.app.page.parts import breakdown, first_change, operator_parts, phase_bars
from sawtooth.app.words import run as words

GROUPS: dict[module_tables.ModuleGroup, str] = {"tree": "Tree", "module": "Module", "class": "Class"}
INSTEAD = 3  # operators that are shown if modules are not known; the Operators screen has all of them
INDENT = "\u2003"  # an em space, because browsers remove leading ordinary spaces
METHOD = (
    "Sums over the GPU operations of the counted steps. A module owns in forward what was launched while it was called, and in backward what "
    "autograd launched for the operators of its forward, known by their sequence numbers. With modules inside, what the modules it calls own is "
    "added. Outside modules lie the loss, the optimizer, gradients that are summed up, and copies. All rows of the tree together are all GPU work."
)


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("Which module took the time is not known.")
        current_result.what_is_missing(result)
        return
    tree = table(rank, "tree")
    if tree.empty:
        _operators_instead(rank, result)
        return
    head = st.container(gap="small")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        group = controls.choice("Group by", GROUPS, "modules_by")
        search = controls.search("module", "part of a name")
        everything = breakdown.all_columns()
    rows = tree if group == "tree" else table(rank, group)
    with head:
        _head(tree, rank, group, result)
        panel.show(charts.icicle(tree, _widest(tree), dark=frame.dark(), method=""), "modules-icicle")
    shown = breakdown.matching(rows, search, ("path",))
    if shown.empty:
        cards.small("No name matches.")
        return
    chosen = _table(shown, rank, group, everything=everything)
    row = shown.iloc[int(shown["gpu_share"].to_numpy(float).argmax()) if chosen is None else chosen]
    _next_step(row, rank, result)
    _kernels_of(row, rank)


def _operators_instead(rank: RankResult, result: RunResult) -> None:
    """Say how to record modules, and show the operators that take most time."""
    rows = operators(rank)
    known = rows.nlargest(INSTEAD, "gpu_self_ms")
    share = float(known["gpu_self_share"].sum()) if len(known) else 0.0
    first = known.iloc[0] if len(known) else None
    by_phase = _phases(rank)
    if takes := phase_bars.sentence(by_phase):
        cards.headline(f"{takes}; which module takes it is not recorded.")
    elif first is not None:
        takes = f"{fmt.clean(str(first['name']), 60)} takes {fmt.share(float(first['gpu_self_share']))} of GPU work"
        cards.headline(f"{takes}; which module it works for is not recorded.")
    else:
        cards.headline("Which module the GPU works for is not recorded.")
    first_change.show(result)
    if len(by_phase):
        phase_bars.show(by_phase, dark=frame.dark())
        panel.explain((), phase_bars.METHOD, "phases")
    how, until_then = panel.beside() if len(known) else (st.container(), None)
    with how:
        cards.empty_state(
            "Recorded with Python calls, this page divides the step among the layers of the model.",
            "It then says which of them takes the time, forward and backward, which runs without tensor cores, and which of its kernels do. "
            "Recording calls slows the host: do it for a few steps, beside a recording without. In your own profiler it is with_stack=True.",
            "sawtooth run --stacks train.py",
        )
    if until_then is not None:
        with until_then:
            _largest_operators(known, share, rank)


def _largest_operators(known: pd.DataFrame, share: float, rank: RankResult) -> None:
    """Show the largest operators, which take ``share`` of GPU work together."""
    cards.title(f"Until then: {len(known)} operators take {fmt.share(share)} of GPU work")
    cells = [
        (
            fmt.clean(str(row["name"]), 80),
            fmt.number(row["gpu_self_ms"]),
            fmt.share(row["gpu_self_share"]),
            significant(row["calls_per_step"], 4),
        )
        for row in known.to_dict("records")
    ]
    cards.table(
        ("Operator", f"GPU, {words.unit_of(rank)}", "Share of GPU work", "Calls per step" if len(rank.counted) else "Calls"),
        cells,
        "The operators that take most",
        figures=True,
    )
    frame.link("operators", "All operators", icon=":material/function:")


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _phases(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return work_by_phase(view)


@st.cache_data(max_entries=64, show_spinner="Adding up operators …", hash_funcs={RankResult: current_result.key_of})
def operators(rank: RankResult) -> pd.DataFrame:
    """Return the operators by name; see ``sawtooth.analysis.tables.kernels.operators``."""
    with current_result.opened(rank) as view:
        return kernel_tables.operators(view, "name")


@st.cache_data(max_entries=64, show_spinner="Adding up modules …", hash_funcs={RankResult: current_result.key_of})
def table(rank: RankResult, group: module_tables.ModuleGroup) -> pd.DataFrame:
    """Return the rows of the table; see ``sawtooth.analysis.tables.modules.modules``."""
    with current_result.opened(rank) as view:
        return module_tables.modules(view, group)


def _head(tree: pd.DataFrame, rank: RankResult, group: module_tables.ModuleGroup, result: RunResult) -> None:
    kinds = tree[tree["ids"].map(len) > 0]
    kind = kinds.groupby(kinds["name"].str.replace(module_tables.ORDINAL, "", regex=True))[
        ["forward_ms", "backward_ms", "gpu_share", "ids"]
    ].sum()
    largest = kind.sort_values("gpu_share").iloc[-1]
    outside = float(tree.loc[tree["ids"].map(len) == 0, "gpu_share"].sum())
    phases = [f"{fmt.duration_ms(largest[f'{p}_ms'])} {p}" for p in ("forward", "backward") if largest[f"{p}_ms"] > 0]
    took = f"take {fmt.share(largest['gpu_share'])} of GPU work: {', '.join(phases)}; {fmt.share(outside)} is outside modules."
    breakdown.head(
        f"{fmt.clean(str(largest.name), 60)} modules {took}"
        if phases
        else "None of the recorded module calls launched GPU work.",
        f"{fmt.count(len(kinds))} modules; times are {words.unit_of(rank)}{', with the modules inside' if group == 'tree' else ', of the module itself'}.",
        ("flops_per_step", "tensor_core_time_share"),
        METHOD,
        "modules",
    )
    first_change.show_with(_changes(tuple(largest["ids"]), rank, result)[:1], result)


def _changes(modules: tuple[int, ...], rank: RankResult, result: RunResult) -> list[tuple[int, Finding]]:
    """Return the numbered findings about the own operations of modules."""
    return first_change.about(about_modules, modules, rank, result)


def _next_step(row: pd.Series, rank: RankResult, result: RunResult) -> None:
    """Link to the changes about a module's own operations, else show their time and where to look."""
    cards.title(f"What to do about {fmt.clean(str(row['name']), 60)}")
    changes = _changes(tuple(row["ids"]), rank, result)
    first_change.link_changes(changes, result)
    if not changes:
        cards.text(operator_parts.unnamed(float(row["gpu_ms"]), rank.metrics["step_time_ms"].value))
        frame.link("efficiency", "How near operators come to the peak", run=result.manifest.id, icon=":material/speed:")


def _table(rows: pd.DataFrame, rank: RankResult, group: module_tables.ModuleGroup, *, everything: bool) -> int | None:
    number, text = panel.number_column, st.column_config.TextColumn
    per = " per step" if len(rank.counted) else ""
    share = "total_share" if group == "tree" else "gpu_share"
    first, second = ("total_", "") if group == "tree" else ("", "total_")
    columns = {
        "label": text("Class" if group == "class" else "Module", width=240),
        "instances": st.column_config.NumberColumn("Modules", format="%d"),
        share: panel.share_bar("GPU share"),
        **_times(rows, first, "", per),
        "tensor_core_share": panel.share_bar("Itself on tensor cores"),
        "path": text("Called from", width="large"),
    }
    always = [c for c in columns if not c.endswith(("kernels_per_step", "gflop_per_step"))]
    columns |= {
        **_times(rows, second, ", itself" if group == "tree" else ", with modules inside", per),
        "tflops": number("Itself, TFLOP/s", rows.get("tflops")),
        "calls_per_step": number(f"Calls{per}", rows.get("calls_per_step")),
    }
    hidden = {"tree": ("instances", "path"), "module": ("instances",), "class": ("path",)}[group]
    label = [INDENT * int(d) + n for d, n in zip(rows["depth"], rows["name"], strict=True)] if group == "tree" else rows["name"]
    order = [c for c in columns if c not in hidden and (everything or c in always)]
    alt = f"GPU time by {GROUPS[group].lower()} of modules."
    return breakdown.table(rows.assign(label=label), columns, order, f"modules-by-{group}", alt)


def _times(rows: pd.DataFrame, prefix: str, which: str, per: str) -> dict[str, Any]:
    """Return the time columns of modules: their own, or with inner modules, as ``prefix`` says."""
    headings = {
        "forward_ms": (f"Forward{which}, ms", "Outside modules: everything but backward"),
        "backward_ms": (f"Backward{which}, ms", None),
        "host_ms": (f"Host{which}, ms", "Its calls, as profiled"),
        "kernels_per_step": (f"Kernels{which}{per}", None),
        "gflop_per_step": (f"GFLOP{which}{per}", None),
    }
    return {
        f"{prefix}{key}": panel.number_column(heading, rows[f"{prefix}{key}"], help_=note)
        for key, (heading, note) in headings.items()
        if f"{prefix}{key}" in rows
    }


def _widest(tree: pd.DataFrame) -> str:
    """Return the finding of the icicle: the module with most time of its own."""
    own = tree[tree["ids"].map(len) > 0]
    row = (own if len(own) else tree).sort_values("gpu_share").iloc[-1]
    return f"{fmt.clean(str(row['name']), 60)} itself takes most, {fmt.share(row['gpu_share'])} of GPU work"


def _kernels_of(row: pd.Series, rank: RankResult) -> None:
    with current_result.opened(rank) as view:
        kernels = module_tables.module_kernels(view, list(row["ids"]))
    name = fmt.clean(str(row["name"]), 60)
    if kernels.empty:
        cards.small(f"{name} launched no GPU work itself.")
        return
    breakdown.kernels(kernels, rank, "modules", name)


main()
