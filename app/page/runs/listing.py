"""The list of runs, as cards or as a table, with search, order, groups and actions for selected runs."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from sawtooth.analysis.knowledge.owners import COMPUTE_OWNERS, HOST_LOADING, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.telemetry.sparkline import SPARKLINE_SECONDS
from sawtooth.app import templates
from sawtooth.app.charts import history, poster_bars
from sawtooth.app.format import clean, markdown, reading, share
from sawtooth.app.page import cards, controls, frame, panel
from sawtooth.app.page.runs import table
from sawtooth.app.page.runs.editing import edit
from sawtooth.app.runs import card as run_card
from sawtooth.app.runs import listing
from sawtooth.app.runs.card import READINGS, Card, is_large, stored_card
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.server.process import jobs
from sawtooth.app.theme import colour_of, colour_of_quantity
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.quantities.registry import BY_COLUMN

FIRST_PAGE = 24  # Cards before "Show more": about four screens.
SEARCH_FROM = 4  # Runs. Of fewer, all cards are visible at once, so a search would not help.
VIEWS = {"table": "Table", "cards": "Cards"}
NOT_COMPUTING = (*LOST_OWNERS, OUTSIDE_PROFILE, HOST_LOADING)  # Owners and causes that count as lost time of a step.
TENSOR_CORES = "tensor_core_compute"
_POSTER = templates.pieces("poster.html")
_BEING_ANALYSED = Card(headline="Is being analysed …")


def show(manifests: list[Manifest]) -> None:
    """Show the runs in the view that the address names."""
    if not manifests:
        return
    has_many = len(manifests) >= SEARCH_FROM
    ordered, group, view = _chosen(manifests) if has_many else (manifests, "none", "cards")
    if view == "table":
        stored = {m.id: stored_card(m, frame.data_folder()) or _BEING_ANALYSED for m in ordered[FIRST_PAGE:]}
        table.show(ordered, group, {m.id: known(m, at_once=False) for m in ordered[:FIRST_PAGE]} | stored, _bar)
        return
    picked = [m for m in manifests if st.session_state.get(f"pick-{m.id}")]
    with st.container(key="compare_bar"):
        _bar(picked)
    shown = st.session_state.get("runs_shown", FIRST_PAGE)
    lost_to = {m.id: card.lost_to for m in ordered if group == "loss" and (card := stored_card(m, frame.data_folder()))}
    shown_ids: set[str] = set()
    names = distinct_names(frame.data_folder().manifests())
    for number, (name, runs) in enumerate(listing.grouped(ordered[:shown], group, lost_to)):
        once = [m for m in runs if m.id not in shown_ids]  # Show each card only once, because its checkbox has one key.
        shown_ids |= {m.id for m in once}
        if name and once:
            cards.title(f"{name[0].upper()}{name[1:]}: {len(once)} {'run' if len(once) == 1 else 'runs'}")
        with st.grid(min_column_width=280, gap="small", key=f"run_cards-{number}"):
            for manifest in once:
                _card(manifest, names)
    if len(ordered) > shown and st.button(f"Show {min(FIRST_PAGE, len(ordered) - shown)} more of {len(ordered)}"):
        st.session_state["runs_shown"] = shown + FIRST_PAGE
        st.rerun()


def _chosen(manifests: list[Manifest]) -> tuple[list[Manifest], str, str]:
    """Let the viewer search, filter, sort, group and choose a view; if a tag is chosen, show its history.

    Returns the runs in their order, the grouping and the view.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key=f"runs_chosen-{_fold(manifests)}"):
        searched = st.text_input("Find a run", placeholder="name, tag, note or id", key="find", bind="query-params", width=260)
        tag, by, group = _order(listing.tags(manifests))
        view = controls.choice("Show as", VIEWS, "show", label_shown=False)  # The parameter `view` names a view of a place.
    stored = {m.id: card for m in manifests if (card := stored_card(m, frame.data_folder())) is not None}
    cards_of = {run: card.readings for run, card in stored.items()}
    ordered = listing.ordered(
        listing.matching_runs(manifests, searched, tag), by, cards_of, {run: card.busy for run, card in stored.items()}
    )
    if not ordered:
        cards.small("No run matches by name, tag, note or id.")
    elif tag is not None and len(ordered) > 1:
        rows = listing.history(ordered, cards_of)
        panel.show(history.chart(rows, listing.history_title(tag, rows), dark=frame.is_dark()), "tag-history")
    return ordered, group, view


def _fold(manifests: list[Manifest]) -> str:
    """Show the button that folds search and sorting on a phone; return "open" or "folded"."""
    searched = st.session_state.get("find") or st.query_params.get("find")
    chosen = ", ".join([*([f"“{clean(searched, 20)}”"] if searched else []), *_order_chosen(listing.tags(manifests))])
    is_open = bool(st.session_state.get("runs_fold_open"))
    with st.container(key="runs_fold"):
        if st.button(f"Find and sort: {markdown(chosen)}", icon=":material/tune:", key="fold_runs"):
            st.session_state["runs_fold_open"] = is_open = not is_open
    return "open" if is_open else "folded"


def _order_chosen(tags: list[str]) -> list[str]:
    """Return labels that say how the runs are filtered, sorted and grouped."""
    tag, by, group = (st.session_state.get(key) or st.query_params.get(key) for key in ("tag", "sort", "group"))
    return [
        *([clean(tag, 30)] if tag in tags and tag else []),
        listing.ORDERS.get(by or "", next(iter(listing.ORDERS.values()))),
        *([listing.GROUPS[group].lower()] if group in listing.GROUPS and group != "none" else []),
    ]


def _order(tags: list[str]) -> tuple[str | None, str, str]:
    """Let the viewer filter by tag, sort and group, in a popover whose button shows the choice."""
    with st.popover(markdown(", ".join(_order_chosen(tags))), icon=":material/sort:", key="order"):
        tag = None
        if tags:
            tag = st.selectbox(
                "Tag",
                tags,
                index=None,
                format_func=lambda t: clean(t, 40),
                key="tag",
                bind="query-params",
                placeholder="Any",
            )
        by = st.selectbox("Sort", list(listing.ORDERS), format_func=listing.ORDERS.__getitem__, key="sort", bind="query-params")
        group = st.selectbox(
            "Group", list(listing.GROUPS), format_func=listing.GROUPS.__getitem__, key="group", bind="query-params"
        )
    return tag, by, group


def _bar(picked: list[Manifest]) -> None:
    """Offer actions for the selected runs; without a selection, the bar is hidden."""
    if not picked:
        return
    names = distinct_names(frame.data_folder().manifests(), 40)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if len(picked) == 1:
            cards.small(f"{names[picked[0].id]} is selected. Select another run to compare it with.")
            frame.link("verdict", "See its verdict", run=picked[0].id, icon=":material/gavel:")
            if st.button("Edit", key="edit_selected", type="tertiary", help="Name, tags, notes, delete"):
                edit(picked[0])
            return
        before, *further_runs = sorted(picked, key=lambda m: m.created_ns)
        label = f"Compare {markdown(names[before.id], 60)} with {markdown(names[further_runs[0].id], 60)}"
        further = {"more": ",".join(m.id for m in further_runs[1:])} if len(further_runs) > 1 else {}
        frame.link(
            "compare",
            label + (f" and {len(further_runs) - 1} more" if further else ""),
            icon=":material/compare_arrows:",
            a=before.id,
            b=further_runs[0].id,
            **further,
        )


def _card(manifest: Manifest, names: Mapping[str, str]) -> None:
    with st.container(border=True, height="stretch", gap="xsmall"):
        frame.link("verdict", f"**{markdown(names[manifest.id], 120)}**", run=manifest.id)
        about = known(manifest)
        cards.about(" · ".join(part for part in (about.gpu, _kinds(manifest)) if part), manifest.tags)
        if about.headline:
            cards.show_bold(about.headline.replace(" → ≈\u00a0", "\u00a0→\u00a0≈\u00a0"))  # Keep both step times on one line.
        if about.parts:
            st.html(_POSTER.narrow(poster_bars.of_shares(about.parts, dark=frame.is_dark()), goes_to(about)))
        cards.numbers(_numbers(about))
        if about.utilization:
            caption = f"{BY_COLUMN[about.utilization_of].label}, last {SPARKLINE_SECONDS} s"
            cards.sparkline(about.utilization, caption, colour_of_quantity(about.utilization_of).on(frame.is_dark()))
        if about.problem:
            cards.caution(about.problem)
        with st.container(
            horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", key=f"card_actions-{manifest.id}"
        ):
            st.checkbox("Compare", key=f"pick-{manifest.id}")
            if st.button("Edit", key=f"edit-{manifest.id}", type="tertiary", help="Name, tags, notes, delete"):
                edit(manifest)


def known(manifest: Manifest, *, at_once: bool = True) -> Card:
    """Return the run's card, or a placeholder while a child process analyses the run.

    Without a stored card, a small run is analysed here if ``at_once``; any other run is analysed by a child process.
    """
    stored = stored_card(manifest, frame.data_folder())
    if stored is not None:
        return stored
    if any(manifest.id in job.progress.runs for job in jobs().all() if job.active):
        return _BEING_ANALYSED
    try:
        if at_once and not is_large(manifest, frame.data_folder()):
            return run_card.card_of(manifest, frame.library())
        job = jobs().analyse(manifest.id)
    except SawtoothError as error:
        return Card(problem=str(error))
    except Exception as error:  # One run that cannot be analysed must not hide the cards of the others.
        number = frame.log_script_error(error)
        return Card(
            problem=f"Analysing this run failed. This is a bug in Sawtooth; the server's log has the details under number {number}."
        )
    return Card(problem=job.outcome.sentence) if job.stage == "failed" else _BEING_ANALYSED


def _about(key: str, value: Reading) -> str:
    text = reading(key, value)
    return f"≈\u00a0{text}" if value.value is not None and value.trust != "ok" and not text.startswith("<") else text


def goes_to(card: Card) -> str:
    """Return where most of the step time goes, such as "mostly waiting for the data loader".

    The card shows the GPU's busy share as a number. So this text mentions it only if the GPU does no work.
    """
    shares: dict[str, float] = dict.fromkeys(COMPUTE_OWNERS, 0.0)
    lost = [part for part in card.parts if part[0] in NOT_COMPUTING]
    for owner, _, part in card.parts:
        shares[owner] = shares.get(owner, 0.0) + part
    computing, losing = sum(shares[owner] for owner in COMPUTE_OWNERS), sum(part for _, _, part in lost)
    if card.lost_to and losing:
        return f"{'mostly' if losing > computing else 'partly'} {card.lost_to}"
    if computing > losing:  # This share is of the compute time, as on Verdict and Kernels.
        on_tensor_cores = shares[TENSOR_CORES] / computing
        return f"mostly compute, {share(on_tensor_cores) if on_tensor_cores else 'none'} of it on tensor cores"
    owner, cause, part = card.parts[0]
    return f"{share(part)} {colour_of(owner, cause).label}"


def _numbers(card: Card) -> list[tuple[str, str]]:
    """Return labels and values of the run's known numbers, and how many times as fast all changes make it."""
    lines = [
        (METRICS[key].label, _about(key, value))
        for key in READINGS
        if (value := card.readings.get(key)) and value.value is not None
    ]
    busy = [] if card.busy is None else [(METRICS["gpu_busy_share"].label, share(card.busy))]
    faster = listing.gain(table.step_of(card), card.after)
    return [*lines[:1], *busy, *lines[1:], *([("All changes", faster)] if faster else [])]


def _kinds(manifest: Manifest) -> str:
    traces = len(manifest.traces)
    parts = [f"{traces} traces" if traces > 1 else "trace" if traces else "", "telemetry" if manifest.telemetry else ""]
    return " + ".join(part for part in parts if part) or "step marks"
