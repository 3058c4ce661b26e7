"""Functions that every screen uses: the chosen run, the data folder, the theme, links and errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import streamlit as st

from sawtooth.analysis.compare.changed.products import products_in
from sawtooth.analysis.ranks.communication import communicates
from sawtooth.app.library import library
from sawtooth.app.page import cards
from sawtooth.app.places import SCREENS, Screen, screen_named, view_at, with_view
from sawtooth.app.runs.card import stored_card
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.manifest import Manifest, is_id
from sawtooth.ingest.schema import DataFolder

__all__ = ["current_run", "data_folder", "is_dark", "library", "link", "switch"]
log = logging.getLogger("sawtooth")

# Screens without content if the run has no GPU work.
OF_THE_GPU = frozenset({"audit", "idle", "work", "efficiency", "memory", "communication"})


def data_folder() -> DataFolder:
    """Return this server's data folder; its subfolders exist."""
    return _created(settings().data)


@lru_cache(maxsize=8)
def _created(folder: DataFolder) -> DataFolder:
    return folder.create()


def is_dark() -> bool:
    """Return whether the page uses the dark theme; False as long as the browser has not reported it."""
    return st.context.theme.type == "dark"


def shown_view(place: str) -> Screen:
    """Return the view of a place that the address names, else the first view of the place."""
    return view_at(place, st.query_params.get("view"))


def page_of(place: str) -> Any:
    """Return the page of a place; its file is the view that the address names."""
    view = shown_view(place)
    return st.Page(f"screens/{view.name}.py", title=view.title, url_path=place)


def parameters(name: str, run: str | None, query: dict[str, str]) -> dict[str, str]:
    """Return the address parameters that open the screen ``name`` for ``run``, by default the chosen one."""
    chosen = run or st.query_params.get("run") or (st.session_state.get("run") if screen_named(name).needs_run else None)
    return with_view(name, {**({"run": chosen} if chosen else {}), **query})


def link(name: str, label: str, *, run: str | None = None, icon: str | None = None, **query: str) -> None:
    """Show a link to a screen as a real address, which can be copied, bookmarked and opened in a new tab."""
    st.page_link(page_of(screen_named(name).place), label=label, icon=icon, query_params=parameters(name, run, query))


def switch(name: str, *, run: str | None = None, **query: str) -> NoReturn:
    """Open the screen ``name`` instead of this one."""
    st.switch_page(page_of(screen_named(name).place), query_params=parameters(name, run, query))


def empty_screens() -> dict[str, str]:
    """Return the screens without content for the chosen run, each with what is missing."""
    run = st.session_state.get("run")
    if run is None:
        return {screen.name: "there is no run yet" for screen in SCREENS if screen.needs_run}
    manifest = data_folder().read_manifest(run)
    empty = {} if manifest.telemetry else {"telemetry": "this run has no telemetry"}
    if len(manifest.traces) < 2 and manifest.summaries is None:  # With a single rank there is nothing to compare.
        empty["ranks"] = "this run has one rank"
    if manifest.summaries is None and not any(_communicates(str(data_folder().root), ref.id) for ref in manifest.traces[:1]):
        empty["communication"] = "this run has no collectives"
    if not manifest.traces:
        empty |= dict.fromkeys([*OF_THE_GPU, "timeline", "sql"], "this run has no trace")
    elif _without_gpu_work(manifest):
        empty |= dict.fromkeys(OF_THE_GPU, "this run has no GPU work")
    if any(ref.kind == "memory" for ref in manifest.recordings):
        empty.pop("memory", None)
    return empty


def remember_gpu_work(run: str, worked: bool) -> bool:
    """Remember whether a GPU worked in a run; return whether this changes which screens are empty."""
    before = empty_screens()
    st.session_state.setdefault("gpu_worked", {})[run] = worked
    return empty_screens() != before


def _without_gpu_work(manifest: Manifest) -> bool:
    """Return whether the run's traces are known to have no GPU work; False if the run is not analysed yet."""
    worked: bool | None = st.session_state.get("gpu_worked", {}).get(manifest.id)
    if worked is None:
        card = stored_card(manifest, data_folder())
        worked = card is None or card.problem is not None or card.gpu != "" or card.busy is not None
    return not worked


def current_run() -> Manifest:
    """Return the chosen run's manifest; if there is none, say what is missing and stop the page."""
    unknown = st.session_state.get("unknown_run")
    if unknown:
        _unknown_run(unknown)
    chosen = st.session_state.get("run")
    if chosen is None:
        cards.headline("There is no run yet.")
        cards.empty_state("Bring in a trace.", "Drop it on the Runs page, or:", "sawtooth ingest trace.json.gz nvml.jsonl")
        st.stop()
    return data_folder().read_manifest(chosen)


def _unknown_run(run: str) -> None:
    """Say that this server does not have the run of the address, and stop the page.

    Text that is not an id is not repeated on the page, because it may come from anybody.
    """
    shown = run if is_id(run) else "of this address"
    cards.headline(f"This server has no run {shown}.", "The link may come from another server, or the run was deleted.")
    cards.empty_state(
        "To open the link, import the run.",
        "Ask the person who sent the link for the run's bundle, and import it here. The link then works.",
        f"sawtooth import {run if is_id(run) else 'RUN'}.sawtooth",
    )
    link("runs", "To the runs of this server", icon=screen_named("runs").icon)
    st.stop()


def products_of_run(manifest: Manifest) -> frozenset[str]:
    """Return the shapes of the matrix products in a run's first trace; empty if it has none."""
    traces = manifest.traces
    return _products(str(data_folder().root), traces[0].id) if traces else frozenset()


@st.cache_data(max_entries=1024, show_spinner=False)
def _products(root: str, recording: str) -> frozenset[str]:
    return products_in(library(), recording)


@st.cache_data(max_entries=1024, show_spinner=False)
def _communicates(root: str, recording: str) -> bool:
    try:
        return communicates(library(), recording)
    except SawtoothError:  # The view reports a missing or damaged recording.
        return True


def run_guarded(part: Callable[[], None]) -> None:
    """Run a part of the page; errors become one sentence, with details in the log."""
    try:
        part()
    except NotFoundError as error:
        cards.problem("Not found", str(error))
    except SawtoothError as error:
        cards.problem("This cannot be shown", str(error))
    except Exception as error:  # The page must also report unexpected errors.
        number = log_script_error(error)
        cards.problem(
            "This page failed",
            f"This is a bug in Sawtooth. The server's log has the details under number {number}; the other pages still work.",
        )


def log_script_error(error: BaseException) -> str:
    """Log an unexpected error under a random number, and return the number, which users can quote."""
    number = secrets.token_hex(4)
    log.error("error %s on a page", number, exc_info=error)
    return number


def script_failed(error: Exception) -> None:
    """Log an error outside ``run_guarded``, such as one in a part of a page that refreshes itself."""
    log_script_error(error)
