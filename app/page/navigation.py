"""The navigation: the sidebar with the places and the chosen run, and the tabs of a place."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from sawtooth.app import templates
from sawtooth.app.live.info import sessions
from sawtooth.app.page import address, frame, keys
from sawtooth.app.page.default_pair import likely_pair
from sawtooth.app.page.drop_zone import arrived_run, drop_zone
from sawtooth.app.places import MENU, PLACES, SCREENS, Screen, screen_named, views_of
from sawtooth.app.places import address as address_of
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.runs.listing import listed
from sawtooth.app.settings import settings

HIDDEN_IF_EMPTY = ("ranks", "communication")  # Views that tabs and search omit if they are empty. Most runs have one rank.
PRESERVED_PARAMETERS = (
    "device",
    "basis",
)  # Address parameters that mean the same in every view of a place, and that a link to a view keeps.
_HTML = templates.pieces("navigation.html")


def pages() -> list[Any]:
    """Return a page for each place, and the page at ``/``, which also shows Runs.

    Nothing links to ``/``, because Streamlit writes a wrong address if such a link has parameters.
    """
    root = st.Page("screens/runs.py", title="Runs", url_path="start", default=True)
    return [root, *(frame.page_of(screen.name) for screen in SCREENS if not screen.of)]


def show(page: Any) -> None:
    """Show the sidebar, the tabs of the place's views, and the page."""
    place = page.url_path or "runs"
    address.repeat_after_link()
    with st.sidebar:
        frame.run_guarded(lambda: _sidebar(place))
    frame.run_guarded(lambda: _where(place))
    frame.run_guarded(lambda: _tabs(place))
    frame.run_guarded(page.run)


def _sidebar(place: str) -> None:
    live = sum(session.live(time.time()) for session in sessions(frame.data_folder().live))
    frame.link("runs", f"Runs :green-badge[{live} live]" if live else "Runs", icon=screen_named("runs").icon)
    _choose_run(place)
    empty = frame.empty_screens()
    for name in PLACES[1:]:
        with st.container(key=f"nav-{'empty' if _is_empty(name, empty) else 'full'}-{name}"):
            first = next((view for view in views_of(name) if view.name not in empty), screen_named(name))
            frame.link(first.name, screen_named(name).title, icon=screen_named(name).icon, **_sides(name))
    with st.container(key="nav-menu"):
        for name in filter(_offered, MENU):
            frame.link(name, screen_named(name).title, icon=screen_named(name).icon)
    screens = [
        (_path_to(screen), _address(screen.name))
        for screen in SCREENS
        if _offered(screen.name) and not (screen.name in HIDDEN_IF_EMPTY and screen.name in empty)
    ]
    keys.listen(screens, st.session_state["run"])
    if place != "runs":
        _drop_anywhere()


def _offered(name: str) -> bool:
    """Return whether the navigation shows a screen: Logins only if the server requires a login."""
    return name != "logins" or settings().token is not None


def _path_to(screen: Screen) -> str:
    return f"{screen_named(screen.of).title} › {screen.title}" if screen.of else screen.title


def _address(name: str, **query: str) -> str:
    return address_of(name, frame.parameters(name, None, query))


def _is_empty(place: str, empty: dict[str, str]) -> bool:
    return all(view.name in empty for view in views_of(place))


def _choose_run(place: str) -> None:
    """Let the viewer choose the run.

    The default is the ``run`` of the address, else the run compared there, else the last chosen one, else the newest. A run that
    the viewer has just dropped takes the place of all of them on Runs.

    The choice survives navigation, reload and Back. On a page that is not about one run, choosing a run opens its Verdict. The
    address is written here, because Streamlit's own binding would write the option's label. A link must contain the run's id,
    which is the same on every server.
    """
    about_one = screen_named(place).needs_run
    if place == "runs" and (arrived := arrived_run()) is not None:
        st.query_params["run"] = arrived
    in_address = st.query_params.get("run")
    compared = st.query_params.get("b", "").split(",")[0]
    shown = tuple(filter(None, (in_address, compared)))
    manifests = frame.data_folder().manifests()
    distinct = distinct_names(manifests)
    names = {m.id: distinct[m.id] for m in listed(manifests, shown)}
    st.session_state["unknown_run"] = in_address if in_address and in_address not in names else None
    if not names:
        st.session_state["run"] = None
        return
    last = st.session_state.get("run")
    run = next((candidate for candidate in (in_address, compared, last) if candidate in names), next(iter(names)))
    st.session_state["run"] = run
    if in_address is None and about_one:
        st.query_params["run"] = run  # The viewer can then copy the address.
    if opened := st.session_state.pop("opened_run", None):
        frame.switch("verdict", run=opened)
    shown_run = None if st.session_state["unknown_run"] else run
    key = _key_of_box(shown_run)
    st.session_state[key] = shown_run
    st.selectbox(
        "Run",
        list(names),
        format_func=lambda option: names.get(option, ""),
        key=key,
        on_change=_follow_choice,
        args=(key, shown_run, about_one),
        index=None if shown_run is None else 0,
        placeholder="Choose a run",
    )


def _key_of_box(run: str | None) -> str:
    """Return the key of the box that shows ``run``: a new key if the box showed another run.

    The browser may not have drawn this page yet when the viewer presses Forward or a button. It then reports the run that the
    box showed before. With the same key, this report would look like a choice of the viewer.
    """
    number = st.session_state.get("run_box", 0)
    if st.session_state.get(f"run_choice-{number}", run) != run:
        number += 1
    st.session_state["run_box"] = number
    return f"run_choice-{number}"


def _follow_choice(key: str, shown_run: str | None, about_one: bool) -> None:
    """Open the run that the viewer chose in the box ``key``, which showed ``shown_run``.

    Streamlit also calls this if only the options changed. Then the viewer has chosen nothing, and nothing is opened.
    """
    chosen = st.session_state[key]
    if chosen in (None, shown_run, st.session_state["run"]):
        return
    if about_one:  # The address may name a range of the previous run, which does not exist in this one.
        address.write({"run": chosen}, address.RANGE)
    else:
        st.session_state["opened_run"] = chosen


def _sides(name: str) -> dict[str, str]:
    """Return the runs of both sides for the link to Compare, so that Back works; none for other places."""
    if name != "compare":
        return {}
    run = st.query_params.get("run")
    pair = likely_pair(listed(frame.data_folder().manifests(), (run,) if run else ()), run, frame.products_of_run)
    return {"a": pair[0].id, "b": pair[1].id} if pair else {"b": run} if run else {}


def _drop_anywhere() -> None:
    """Accept files that are dropped on any screen; the Runs page then shows their progress."""
    if drop_zone(note="", compact=True, key="drop_anywhere"):
        frame.switch("runs")


def _where(place: str) -> None:
    """Show the place and the run in the top bar of a phone, where the sidebar that names them is closed."""
    run = st.session_state.get("run") if screen_named(place).needs_run else None
    name = distinct_names(frame.data_folder().manifests(), 40).get(run, "") if run is not None else ""
    with st.container(key="where"):  # The class exists before the text, so a wide page reserves no line for it.
        st.html(_HTML.where(frame.shown_view(place).title, name))


def _tabs(place: str) -> None:
    """Show the views of a place as links; the link to an empty view is dimmed and says what is missing."""
    views = views_of(place)
    if len(views) < 2:
        return
    empty = frame.empty_screens()
    shown = frame.shown_view(place)
    preserved = {name: st.query_params[name] for name in PRESERVED_PARAMETERS if name in st.query_params}
    tabs = [
        (view.tab or view.title, _address(view.name, **preserved), view is shown, empty.get(view.name))
        for view in views
        if view is shown or not (view.name in HIDDEN_IF_EMPTY and view.name in empty)
    ]
    with st.container(key="views"):
        st.html(_HTML.tabs(screen_named(place).title, tabs))
