"""The page's address: what it says of several things at once is written at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st
from streamlit.runtime.state.session_state_proxy import get_session_state


def write(values: Mapping[str, str], names: Iterable[str]) -> None:
    """Write ``values`` into the address and take the other ``names`` out of it: what is written one by one is as many stops for Back."""
    with get_session_state().query_params() as parameters:
        for name in set(names) - set(values):
            parameters.discard_param_no_forward_msg(name)
    st.query_params.update(values)
