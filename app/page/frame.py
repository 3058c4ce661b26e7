"""The frame around every screen: the list of screens, the current run, and the handling of errors.

Screens get the run (``current_run``), the store (``library``) and the theme (``dark``) from this module. They need nothing else
of the server.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import streamlit as st

from sawtooth.analysis.compare.changed.products import products_in
from sawtooth.app import format as fmt
from sawtooth.app.format import clean
from sawtooth.app.library import library
from sawtooth.app.page import address, cards, keys
from sawtooth.app.page.default_pair import likely_pair
from sawtooth.app.page.drop_zone import drop_zone
from sawtooth.app.runs.card import stored_card
from sawtooth.app.runs.listing import listed
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.manifest import Manifest, is_id
from sawtooth.ingest.schema import DataFolder

__all__ = ["SCREENS", "Screen", "current_run", "dark", "data_folder", "library", "link", "page_of", "pages", "show"]
PLACE = ("t0", "t1", "slice", "finding", "find", "lanes")  # address parameters that describe a place on the timeline
SCREENS_FOLDER = Path(__file__).resolve().parents[1] / "screens"
log = logging.getLogger("sawtooth")


@dataclass(frozen=True)
class Screen:
    """One screen: its file in ``app/screens``, its place in the navigation, and whether it shows one run."""

    name: str
    title: str
    icon: str
    section: str
    needs_run: bool = True

    @property
    def file(self) -> Path:
        """The path of the screen's script."""
        return SCREENS_FOLDER / f"{self.name}.py"


# Screens without content if the run has no GPU work.
OF_THE_GPU = frozenset({"audit", "idle", "kernels", "operators", "modules", "efficiency", "memory"})
SECTIONS = ("Answer", "Why it waits", "What it works on", "All runs")
SCREENS: tuple[Screen, ...] = (
    Screen("runs", "Runs", ":material/stacks:", "", needs_run=False),
    Screen("verdict", "Verdict", ":material/gavel:", "Answer"),
    Screen("audit", "Audit", ":material/checklist:", "Answer"),
    Screen("timeline", "Timeline", ":material/view_timeline:", "Why it waits"),
    Screen("idle", "Idle", ":material/hourglass_empty:", "Why it waits"),
    Screen("kernels", "Kernels", ":material/memory:", "What it works on"),
    Screen("operators", "Operators", ":material/function:", "What it works on"),
    Screen("modules", "Modules", ":material/account_tree:", "What it works on"),
    Screen("efficiency", "Efficiency", ":material/speed:", "What it works on"),
    Screen("ranks", "Ranks", ":material/lan:", "Why it waits"),
    Screen("memory", "Memory", ":material/database:", "What it works on"),
    Screen("telemetry", "Telemetry", ":material/monitoring:", "Why it waits"),
    Screen("compare", "Compare", ":material/compare_arrows:", "All runs", needs_run=False),
    Screen("live", "Live", ":material/sensors:", "All runs", needs_run=False),
    Screen("sql", "SQL", ":material/code:", "All runs"),
    Screen("reference", "Reference", ":material/menu_book:", "All runs", needs_run=False),
    Screen("logins", "Logins", ":material/key:", "All runs", needs_run=False),
)


def data_folder() -> DataFolder:
    """Return this server's data folder; its subfolders exist."""
    return _created(settings().data)


@lru_cache(maxsize=8)
def _created(folder: DataFolder) -> DataFolder:
    return folder.create()


def dark() -> bool:
    """Return whether the page uses the dark theme; False as long as the browser has not reported it."""
    return st.context.theme.type == "dark"


def pages() -> list[Any]:
    """Return the navigation's pages: every screen, with Runs first."""
    return [
        st.Page(screen.file, title=screen.title, icon=screen.icon, url_path=screen.name, default=screen.name == "runs")
        for screen in SCREENS
    ]


def screen_named(name: str) -> Screen:
    """Return the screen with the name ``name``."""
    return next(screen for screen in SCREENS if screen.name == name)


def page_of(name: str) -> str:
    """Return the page of the screen ``name``, as ``st.page_link`` and ``st.switch_page`` expect it."""
    return f"screens/{name}.py"


def link(name: str, label: str, *, run: str | None = None, icon: str | None = None, **query: str) -> None:
    """Show a link to a screen as a real address, which can be copied, bookmarked and opened in a new tab."""
    screen = screen_named(name)
    chosen = run or st.query_params.get("run") or (st.session_state.get("run") if screen.needs_run else None)
    parameters = {**({"run": chosen} if chosen else {}), **query}
    st.page_link(page_of(name), label=label, icon=icon, query_params=parameters)


def run_selector(page_name: str) -> None:
    """Let the viewer choose the run: the ``run`` of the address, else the newest.

    The choice survives navigation, reload and Back. A page that is not about one run shows a link back to the run instead.
    Streamlit's own binding would write the option's label into the address. A link must contain the run's id, which is the same
    on every server.
    """
    asked = st.query_params.get("run")
    names = {manifest.id: manifest.name for manifest in listed(data_folder().manifests(), (asked,) if asked else ())}
    st.session_state["asked_run"] = asked if asked and asked not in names else None
    if not names:
        st.session_state["run"] = None
        return
    run = asked if asked is not None and asked in names else next(iter(names))
    st.session_state["run"] = run
    if not screen_named(page_name).needs_run:
        compared = ",".join(st.query_params.get(side, "") for side in "ab").split(",") if page_name == "compare" else [run]
        if asked == run and page_name != "runs" and run in compared:
            link("verdict", f"Back to {fmt.markdown(_run_label(run, names), 40)}", run=run, icon=":material/arrow_back:")
        return
    if asked is None:
        st.query_params["run"] = run  # so that the viewer can copy the address
    st.session_state["run_choice"] = None if st.session_state["asked_run"] else run
    st.selectbox(
        "Run",
        list(names),
        format_func=lambda option: _run_label(option, names),
        key="run_choice",
        on_change=_follow_choice,
        index=None if st.session_state["asked_run"] else 0,
        placeholder="Choose a run",
    )


def _run_label(run: str, names: dict[str, str]) -> str:
    name = clean(names.get(run) or "", 60)
    return name if list(names.values()).count(names.get(run) or "") < 2 else f"{name} · {run[:6]}"


def _follow_choice() -> None:
    # The address may name a place in the previous run, which does not exist in this one.
    address.write({"run": st.session_state["run_choice"]}, PLACE)


def navigation(page_name: str) -> None:
    """Show the sidebar: Runs, the chosen run's screens, and the screens about all runs."""
    link("runs", "Runs", icon=screen_named("runs").icon)
    run_selector(page_name)
    empty = empty_screens()
    for section in SECTIONS if screen_named(page_name).needs_run else SECTIONS[-1:]:
        cards.section_label(section)
        for screen in SCREENS:
            if screen.section == section and _shown(screen):
                with st.container(key=f"nav-{'empty' if screen.name in empty else 'full'}-{screen.name}"):
                    link(screen.name, screen.title, icon=screen.icon, **(_sides() if screen.name == "compare" else {}))
    if page_name != "runs":
        _drop_anywhere()
    keys.listen()


def _shown(screen: Screen) -> bool:
    """Return whether the navigation lists a screen: Logins is listed only if the server requires a login."""
    return screen.name != "logins" or settings().token is not None


def empty_screens() -> frozenset[str]:
    """Return the screens without content for the chosen run; each says what is missing."""
    run = st.session_state.get("run")
    if run is None:
        return frozenset(screen.name for screen in SCREENS if screen.needs_run)
    manifest = data_folder().read_manifest(run)
    empty = set() if manifest.telemetry else {"telemetry"}
    if len(manifest.traces) < 2 and manifest.summaries is None:  # a single rank cannot wait for another one
        empty.add("ranks")
    if not manifest.traces:
        empty |= {*OF_THE_GPU, "timeline", "sql"}
    elif _without_gpu_work(manifest):
        empty |= OF_THE_GPU
    return frozenset(empty)


def remember_gpu_work(run: str, worked: bool) -> bool:
    """Remember whether a GPU worked in a run; return whether this changes the dimmed screens."""
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


def _sides() -> dict[str, str]:
    """Return the parameters of the navigation's link to Compare, complete, so that Back works."""
    asked = st.query_params.get("run")
    pair = likely_pair(listed(data_folder().manifests(), (asked,) if asked else ()), asked, products_of_run)
    return {"a": pair[0].id, "b": pair[1].id} if pair else {"b": asked} if asked else {}


def products_of_run(manifest: Manifest) -> frozenset[str]:
    """Return the shapes of the matrix products in a run's first trace; empty if it has none."""
    traces = manifest.traces
    return _products(str(data_folder().root), traces[0].id) if traces else frozenset()


@st.cache_data(max_entries=1024, show_spinner=False)
def _products(root: str, recording: str) -> frozenset[str]:
    return products_in(library(), recording)


def _drop_anywhere() -> None:
    """Accept files that are dropped on any screen; the Runs page then shows their progress."""
    started = drop_zone(note="", compact=True, key="drop_anywhere")
    if started:
        st.session_state["my_jobs"] = [*st.session_state.get("my_jobs", []), started]
        st.switch_page(page_of("runs"))


def current_run() -> Manifest:
    """Return the chosen run's manifest, or say what is missing and stop the page."""
    asked = st.session_state.get("asked_run")
    if asked:
        _unknown_run(asked)
    chosen = st.session_state.get("run")
    if chosen is None:
        cards.headline("There is no run yet.")
        cards.empty_state("Bring in a trace.", "Drop it on the Runs page, or:", "sawtooth ingest trace.json.gz nvml.jsonl")
        st.stop()
    return data_folder().read_manifest(chosen)


def _unknown_run(asked: str) -> None:
    shown = asked if is_id(asked) else "of this address"
    cards.headline(f"This server has no run {shown}.", "The link may come from another server, or the run was deleted.")
    cards.empty_state(
        "To open the link, import the run.",
        "Ask its sender for the bundle and import it here; the link then works.",
        f"sawtooth import {asked if is_id(asked) else 'RUN'}.sawtooth",
    )
    link("runs", "To the runs of this server", icon=screen_named("runs").icon)
    st.stop()


def show(page: Any) -> None:
    """Show the sidebar and run a screen; errors become one sentence, with details in the log."""
    with st.sidebar:
        _guarded(lambda: navigation(page.url_path or SCREENS[0].name))
    _guarded(page.run)


def _guarded(part: Callable[[], None]) -> None:
    try:
        part()
    except NotFoundError as error:
        cards.problem("Not found", str(error))
    except SawtoothError as error:
        cards.problem("This cannot be shown", str(error))
    except Exception as error:  # unexpected errors too: the page must still say something
        number = log_script_error(error)
        cards.problem(
            "This page failed",
            f"This is a bug in Sawtooth. The server's log has the details under number {number}; the other pages still work.",
        )


def log_script_error(error: BaseException) -> str:
    """Log an unexpected error under a number that users can quote; return the number."""
    number = secrets.token_hex(4)
    log.error("error %s on a page", number, exc_info=error)
    return number


def script_failed(error: Exception) -> None:
    """Log an error outside ``show``, such as one in a part of a page that refreshes itself."""
    log_script_error(error)
