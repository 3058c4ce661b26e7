"""Write several parameters of the page's address in one update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.session_state_proxy import get_session_state

RANGE = ("t0", "t1", "slice", "finding", "find", "lanes")  # Parameters that describe a range of the timeline.
OPEN = "open"  # The bar of the Verdict whose details are open.


def write(values: Mapping[str, str], names: Iterable[str]) -> None:
    """Write ``values`` into the address and remove the other ``names`` from it.

    One update keeps one entry in the browser's history. Separate updates would need several presses of Back.
    """
    with get_session_state().query_params() as parameters:
        for name in set(names) - set(values):
            parameters.discard_param_no_forward_msg(name)
    st.query_params.update(values)


def repeat_after_link() -> None:
    """Send the address to the browser again if a link or the Back button opened this page.

    Otherwise a late message of the previous page could make Streamlit write that page's parameters into the new address.
    Other page loads do not repeat the address, because that would add an entry to the browser's history.
    """
    context = get_script_run_ctx()
    if context is not None and context.is_history_navigation:
        st.query_params.update({})
