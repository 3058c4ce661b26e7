"""The Audit screen: tuning techniques that this run uses, and the audits of a chain of runs."""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.batch_predictions import step_at_batch
from sawtooth.analysis.compare.chain import RunChain, chain
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.findings.checklist import checklist
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import templates
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.reports import audit as report
from sawtooth.app.runs.listing import listed
from sawtooth.app.words import advice
from sawtooth.app.words import checklist as words
from sawtooth.app.words.comparisons import audit
from sawtooth.app.words.comparisons import chain as chain_words
from sawtooth.ingest.manifest import Manifest

_HTML = templates.pieces("audit.html")
MAX_ROWS = 6  # Rows: first_paint.css reserves a height for up to this number.
MAX_RUNS = 8  # Runs, each a column. As many as fit on a page of 1,440 pixels.


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    manifest = result.manifest
    if result.lead is None:
        cards.headline("Nothing of this run can be checked against the tuning guides.")
        current_result.what_is_missing(result)
        return
    with frame.library().open(result.lead.recording_id) as recording:
        checked = checklist(result, recording)
    plan = advice.planned_steps(result)
    cards.headline(": ".join(filter(None, (words.effect(result), plan))), f"{words.states(checked)}.")
    if changes := words.to_do(result, checked):
        with st.container(key=f"audit_of_{min(len(changes), MAX_ROWS)}_"):
            st.html(_HTML.changes(words.TO_DO_COLUMNS, changes, "The changes, numbered as on the Verdict, and why"))
        if plan:
            cards.small(
                "Each gain is of that change alone. Together, the changes save less than the sum, because their gains overlap."
            )
        frame.link("verdict", "How to make these changes", run=manifest.id, icon=":material/arrow_forward:")
    with st.container(gap="xsmall"):
        if without_finding := words.without_finding(checked):
            with st.expander(
                f"{len(without_finding)} other techniques: in use, without a gain here, or not seen",
                icon=":material/checklist:",
            ):
                cards.table(words.COLUMNS, without_finding, "Techniques without a finding")
        known_rows, unknown_rows = audit.known_and_unknown(result)
        if known_rows:
            with st.expander("What a step costs: time, memory, energy", icon=":material/payments:", expanded=True):
                first, second = panel.two_columns()
                with first:
                    cards.table(("Known", "In this run"), known_rows, "What a step of this run costs")
                if unknown_rows:
                    with second:
                        cards.table(("Not known", "What is missing"), unknown_rows, "Costs that are not known, and why")
        _chain(result, manifest)
    panel.downloads(
        "checklist",
        [("Checklist as Markdown", "md", "text/markdown", lambda: report.of_run(result, checked))],
        "checklist",
    )


def _chain(result: RunResult, manifest: Manifest) -> None:
    """Let the viewer choose runs in the order of the changes, and show their audits side by side."""
    chosen = bool(st.session_state.get("chain") or st.query_params.get("chain"))
    with st.expander("Audits of several runs side by side", icon=":material/table_rows:", expanded=chosen):
        _of_chain(result, manifest)


def _of_chain(result: RunResult, manifest: Manifest) -> None:
    names = {other.id: other.name for other in listed(frame.data_folder().manifests()) if other.traces}
    chosen = st.multiselect(
        "Runs after this one, in the order of the changes",
        [run for run in names if run != manifest.id],
        format_func=names.__getitem__,
        key="chain",
        bind="query-params",
        max_selections=MAX_RUNS - 1,
        placeholder="Choose the runs that followed",
    )
    if not chosen:
        cards.small("Choose the runs of the same training that followed this one. Each should have one more change.")
        return
    library = frame.library()
    results = [result, *(result_of(frame.data_folder().read_manifest(run), library) for run in chosen)]
    run_chain: RunChain = chain(
        [side_of([run_result], library) for run_result in results], lambda run, times: step_at_batch(run, times, library)
    )
    cards.text(f"{chain_words.title(run_chain)}.")
    cards.table(chain_words.heads(run_chain), chain_words.rows(run_chain), "The audit of each run and the gain of each change")
    panel.downloads("audit", [("Audit as Markdown", "md", "text/markdown", lambda: report.of_chain(run_chain))], "audit")


main()
