"""Ways to start a session: sample this machine, replay, push from another machine, or import samples."""

from __future__ import annotations

import time
from typing import Literal
from urllib.parse import urlsplit

import streamlit as st

from sawtooth.app.page import cards, frame
from sawtooth.app.page.live import push_command
from sawtooth.app.server.local_sampler import bundled_telemetry, gpus_here, local_sampler, start_replay, start_sampling
from sawtooth.app.settings import is_loopback, settings


def show(*, compact: bool) -> None:
    """Show the ways that are possible on this machine; ``compact`` adds the title "Another session"."""
    if compact:
        cards.title("Another session")
    ways = [_push_how]
    if gpus_here().count:
        ways.insert(0, _here)
    if compact and bundled_telemetry() is not None:  # else the button is beside the example
        ways.append(_replay)
    with st.grid(min_column_width=460, gap="medium") if len(ways) > 1 else st.container():
        for way in ways:
            with st.container(border=True, height="stretch", gap="small"):
                way()
    frame.link("runs", "Read samples you have: nvidia-smi, DCGM, nvitop or Prometheus", icon=":material/upload:")


def _here() -> None:
    cards.title("Sample the GPUs of this machine")
    cards.small("Samples ten times per second and uses about 1 % of one core. The training job is not changed.")
    if st.button("Start sampling", icon=":material/play_arrow:", type="primary", disabled=local_sampler().pid is not None):
        st.session_state["live_started"] = (start_sampling(), time.time())
        st.rerun()


def _replay() -> None:
    cards.title("Replay a recording")
    cards.small("A ResNet-50 on an H200 that waits for its data loader.")
    replay_button()


def replay_button() -> None:
    """Offer to replay the bundled recording as a session."""
    label, icon = "Replay the bundled recording", ":material/replay:"
    look: Literal["primary", "secondary"] = "secondary" if gpus_here().count else "primary"
    if st.button(label, icon=icon, type=look, disabled=local_sampler().pid is not None):
        pid = start_replay()
        if pid is not None:
            st.session_state["live_started"] = (pid, time.time())
        st.rerun()


def _push_how() -> None:
    parts = urlsplit(push_command.server_address())
    cards.title("Watch a GPU of another machine")
    with st.grid(min_column_width=380, gap="medium"):
        if is_loopback(parts.hostname or ""):
            port = parts.port or 8501
            with st.container(gap="small"):
                cards.small("Open a tunnel (or serve with `--address 0.0.0.0`):")
                st.code(f"ssh -R {port}:localhost:{port} TRAINING-HOST", language=None, wrap_lines=True)
        with st.container(gap="small"):
            cards.small("Run this beside the training job, which is not changed:")
            push_command.show("live")
            if not settings().token:
                cards.small(
                    "This server has no logins, so the page does not show the token. It is in the data folder, in `push_token`."
                )
