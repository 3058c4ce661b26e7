"""The Compare screen: the verdict, each part of the step, kernels, operators, findings and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import poster_bars, step_pair, waterfall
from sawtooth.app.page import cards, controls, frame, panel
from sawtooth.app.page.parts import compare_sweep, module_changes, step_strip
from sawtooth.app.page.runs import compare_choice, compare_proof, different_models
from sawtooth.app.page.runs.compare_choice import Choice
from sawtooth.app.page.sharing import comparison_ways_out
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.runs.listing import listed
from sawtooth.app.words.answer.step import own_names_in_words
from sawtooth.app.words.comparisons import audit, basis, changes, conditions, step_parts
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.ingest.manifest import Manifest

poster = templates.pieces("poster.html")
LEDGERS: dict[step_parts.Step, str] = {"run": "Steps of the run", "profiled": "Steps under the profiler"}
LISTS = {"kernels": "Kernels", "operators": "Operators"}
NAME_SHOWN = 40  # Characters of a run's name on the button that changes the runs.
EXAMPLE = "The newest two runs of the same work."
HOW_TO = "sawtooth ingest before/ && sawtooth ingest after/"


def main() -> None:
    """Show the page."""
    manifests = frame.data_folder().manifests()
    manifest_of = {manifest.id: manifest for manifest in manifests}
    came_from = st.query_params.get("run")
    choice = compare_choice.read(listed(manifests, (came_from,) if came_from else ()), came_from)
    if choice is None:
        cards.headline("Compare a run with the same run after a change.")
        missing = "There is no run yet." if not manifests else "There is one run; a comparison needs two."
        cards.empty_state(missing, "Drop the traces of both runs on the Runs page, or ingest them on the command line.", HOW_TO)
        return
    offered = {manifest.id: manifest for manifest in listed(manifests, (*choice.a, *choice.b, *choice.more))}
    names = distinct_names(manifests)
    if not choice.a or not choice.b:
        _unchosen(choice, manifest_of, names)
        with st.container(horizontal=True, gap="small", key="compare_pickers_open"):
            _pickers(choice, offered, names)
        compare_choice.partners(choice, list(offered.values()), names)
        return
    ways_out = _chosen(choice, offered, names)
    head = st.container(key="compare_head_of_two")
    head.empty()  # A container without any element has no height.
    if not compare_choice.complete(choice, manifest_of, head):
        return
    a, b = ([manifest_of[run] for run in side] for side in (choice.a, choice.b))
    comparison = compare_choice.comparison_of(a, b, names)
    with head:
        compare_proof.head(comparison, EXAMPLE if choice.example else "")
    if words.is_one_run(comparison):
        return
    with st.container(key="compare_bars"):
        _both_steps(comparison)
    with ways_out:
        comparison_ways_out.show(comparison)
    if comparison.other_model:
        different_models.show(comparison)
        _audit(comparison)
        _folded_conditions(comparison)
        return
    first, second = panel.two_columns()
    with first:
        compare_proof.ratio(comparison)
        compare_proof.limited_by(comparison)
    with second:
        compare_proof.causes(comparison)
        compare_proof.next_change(comparison)
    with st.container(gap="xsmall"):
        _folded(comparison)
        compare_sweep.show(choice, offered, names)


def _folded(comparison: Comparison) -> None:
    """Show details in folded sections; a section is open if the address has a parameter of it."""
    gpu_worked = all(step_parts.gpu_worked(comparison))
    with st.expander(
        f"The change, part by part{' and step by step' if gpu_worked else ''}",
        icon=":material/waterfall_chart:",
        expanded="ledger" in st.query_params or not step_parts.steps_divided(comparison),
    ):
        _step(comparison)
        if gpu_worked:
            _steps(comparison)
    if gpu_worked or changes.host_operators(comparison):
        linked = any(key in st.query_params for key in ("changed", "named"))
        label = "Kernels, operators and modules" if gpu_worked else "Operators on the host"
        with st.expander(label, icon=":material/memory:", expanded=linked):
            if gpu_worked:
                _lists(comparison)
                module_changes.show(comparison.a.runs[0].lead, comparison.b.runs[0].lead)
            _host_operators(comparison)
    with st.expander("Findings, audit and metrics", icon=":material/fact_check:"):
        _findings(comparison)
        _audit(comparison)
        _side_by_side(comparison)
    with st.expander(f"How sure? {_confidence(comparison)}", icon=":material/help:"):
        for line in (words.how_sure(comparison), words.why_sure(comparison), *basis.bases(comparison)):
            cards.text(line)
        _conditions(comparison)


def _confidence(comparison: Comparison) -> str:
    """Return the confidence, and how many conditions differ."""
    return ", ".join(filter(None, (words.stated_confidence(comparison), _differing(comparison))))


def _differing(comparison: Comparison) -> str:
    """Return how many conditions differ; "" if none does."""
    differing = len(conditions.rows(comparison))
    return f"{fmt.many(differing, 'condition')} {'differs' if differing == 1 else 'differ'}" if differing else ""


def _folded_conditions(comparison: Comparison) -> None:
    with st.expander(_differing(comparison) or "Conditions", icon=":material/rule:"):
        _conditions(comparison)


def _unchosen(choice: Choice, manifest_of: Mapping[str, Manifest], names: Mapping[str, str]) -> None:
    chosen_run = next((run for run in (*choice.a, *choice.b) if run in manifest_of), None)
    cards.headline(
        f"Compare {names[chosen_run]} with which run?" if chosen_run is not None else "Which two runs to compare?",
        "No other run is known to do the same work. Runs with similar matrix products or the same GPU come first. The bar shows the step time.",
    )


def _chosen(choice: Choice, manifest_of: Mapping[str, Manifest], names: Mapping[str, str]) -> DeltaGenerator:
    """Show the names of both sides, with folded selectors.

    Return the container for the sharing buttons.
    """
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="small", key="compare_sides"
    ):
        sides = " → ".join(
            " + ".join(fmt.markdown(names.get(run, run), NAME_SHOWN) for run in side) for side in (choice.a, choice.b)
        )
        with (
            st.popover(sides, icon=":material/compare_arrows:", width="content", key="compare_runs"),
            st.container(key="compare_pickers"),
        ):
            _pickers(choice, manifest_of, names)
        return st.container(horizontal=True, width="content", gap="small", key="compare_share")


def _pickers(choice: Choice, manifest_of: Mapping[str, Manifest], names: Mapping[str, str]) -> None:
    compare_choice.picker("a", "A, before", choice.a, choice.b, manifest_of, names)
    compare_choice.picker("b", "B, after", choice.b, choice.a, manifest_of, names)
    if choice.a and choice.b:
        st.button("Swap sides", icon=":material/swap_horiz:", on_click=compare_choice.swap, width="content")


def _conditions(comparison: Comparison) -> None:
    """Show the conditions that differ, and a line about the other conditions."""
    if rows := conditions.rows(comparison):
        cards.title(conditions.TITLE)
        cards.table(("Condition", *words.names(comparison)), rows, "Conditions that differ between the runs")
    cards.small(conditions.unchanged_conditions(comparison))


def _both_steps(comparison: Comparison) -> None:
    """Show both steps as bars on one scale, if they can be divided."""
    if (steps := step_parts.steps_divided(comparison)) and not words.is_one_run(comparison):
        parts = step_parts.bars(comparison, steps[0])
        drawn = poster_bars.both_steps(
            parts,
            words.names(comparison),
            dark=frame.is_dark(),
            about=words.both_about(comparison),
        )
        st.html(
            poster.bars(
                drawn,
                poster_bars.named_once(drawn, parts, dark=frame.is_dark()),
                step_parts.idle_title(parts, steps[0]),
                step_pair.ribbons(parts, dark=frame.is_dark()),
            )
        )
        for side, name in zip((comparison.a, comparison.b), words.names(comparison), strict=True):
            for line in own_names_in_words(side.first, name):
                cards.small(line)


def _step(comparison: Comparison) -> None:
    """Show the waterfall of the step that the viewer chose: the run's step, or the profiled one."""
    names = words.names(comparison)
    if steps := step_parts.steps_divided(comparison):
        step = _ledger(steps)
        bars = step_parts.bars(comparison, step)
        chart = waterfall.waterfall(
            bars,
            names,
            step_parts.title(bars, step, shown=words.shown(comparison)),
            dark=frame.is_dark(),
            method=step_parts.method(step, host=not any(step_parts.gpu_worked(comparison))),
        )
        panel.show(chart, "waterfall")
        if step == "profiled" and comparison.disagreement:
            cards.caution(fmt.spaced(comparison.disagreement))
        if step != steps[0]:  # The page shows the bars of the first one at its top.
            panel.show(waterfall.two_steps(bars, names, step_parts.idle_title(bars, step), dark=frame.is_dark()), "two-steps")
    else:
        cards.empty_state(*step_parts.undivided(comparison))


def _steps(comparison: Comparison) -> None:
    """Show the profiled steps of each side's first run by owner, on one scale, and every step as a dot."""
    sides = [(side.runs[0].manifest.id, side.runs[0].lead) for side in (comparison.a, comparison.b)]
    top = max((step_strip.longest_step_ms(lead) for _, lead in sides if lead is not None), default=0.0)
    a, b = basis.steps(comparison)
    if top and (a or b):
        cards.title(basis.dots_title(comparison))
    for (run, lead), name in zip(sides, words.names(comparison), strict=True):
        if lead is not None and top:
            step_strip.show(run, lead, name=name, longest_ms=top)
    if sides[0][0] != sides[1][0]:
        frame.link("timeline", "Both on one timeline", icon=":material/stacks:", run=sides[0][0], beside=sides[1][0])
    if a or b:
        dots = waterfall.step_dots(a, b, words.names(comparison), dark=frame.is_dark())
        panel.show(dots, "step-dots")


def _ledger(steps: Sequence[step_parts.Step]) -> step_parts.Step:
    """Let the viewer choose between the run's step and the profiled one, if both can be divided."""
    if len(steps) == 1:
        return steps[0]
    return controls.choice("Which step", LEDGERS, "ledger", label_shown=False)


def _lists(comparison: Comparison) -> None:
    with st.container(horizontal=True, vertical_alignment="top"):
        kind = controls.choice("By change", LISTS, "changed")
        search = controls.search("named", "part of a name or shape")
    rows = comparison.kernels if kind == "kernels" else comparison.operators
    moved = changes.moved(rows, comparison)
    cards.title(changes.match_title(moved, kind.removesuffix("s")))
    table = changes.matching(changes.match_rows(rows if search else moved), search)
    if table.empty:
        cards.small("No name matches." if search else f"Search shows all {fmt.many(len(rows), kind.removesuffix('s'))}.")
        return
    panel.table(*changes.shown_rows(table, words.names(comparison)), f"compare-{kind}")
    cards.small(
        "The full duration of each operation counts, even if others run at the same time, so the rows may sum to more than the step. Rows are matched by name, and by operator and shapes if the name changed."
    )


def _findings(comparison: Comparison) -> None:
    for heading, findings in words.findings(comparison):
        cards.title(f"{heading}: {fmt.many(len(findings), 'finding')}")
        for finding in findings:
            with st.container(border=True, gap="xsmall"):
                cards.text(finding.title)
                cards.small(finding.fix)
    if comparison.not_comparable_findings:
        cards.small(f"Not comparable, because one side could not be checked: {', '.join(comparison.not_comparable_findings)}.")


def _audit(comparison: Comparison) -> None:
    if rows := audit.pair_rows(comparison):
        cards.title("How well each run uses its GPU")
        shown = 3 if comparison.unrelated else 4  # A difference between two models is not a change.
        cards.table(
            (audit.TITLE, *words.names(comparison), "Change")[:shown], [row[:shown] for row in rows], "The audit of both runs"
        )


def _host_operators(comparison: Comparison) -> None:
    if rows := changes.host_operators(comparison):
        cards.title(f"The operator on the host that changed most: {rows[0].what}, {rows[0].change} per profiled step")
        cards.table(("Operator", *words.names(comparison), "Change"), rows, "Operators of the host on both sides", figures=True)
        cards.small(
            "Time in the operator itself, without the operators that it calls, per profiled step. Only operators among the ten longest of both sides are listed."
        )


def _side_by_side(comparison: Comparison) -> None:
    rows, same = changes.changed_rows(comparison, audit.AUDITED_METRICS if audit.pair_rows(comparison) else ())
    if rows:
        cards.title(f"{fmt.many(len(rows), 'metric')} side by side")
        cards.table(("Metric", *words.names(comparison), "Change"), rows, "Metrics of both sides")
        if same:
            cards.small(f"{fmt.many(same, 'metric')} without a change {'is' if same == 1 else 'are'} in the report only.")


main()
cards.ready()
