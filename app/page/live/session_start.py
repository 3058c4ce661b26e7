"""Ways to start a session: sample this machine, replay, push from another machine, or import samples."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import streamlit as st

from sawtooth.app.page import cards, frame
from sawtooth.app.page.live import push_command
from sawtooth.app.server.local_sampler import bundled_telemetry, gpus_here, local_sampler, start_replay, start_sampling
from sawtooth.app.settings import is_loopback, settings


def show() -> None:
    """Show the ways to start another session that are possible on this machine."""
    cards.title("Another session")
    ways = [_push_how]
    if gpus_here().count:
        ways.insert(0, _here)
    if bundled_telemetry() is not None:
        ways.append(_replay)
    with st.grid(min_column_width=460, gap="medium") if len(ways) > 1 else st.container():
        for way in ways:
            with st.container(border=True, height="stretch", gap="small"):
                way()
    _link_to_files()


def buttons() -> None:
    """Show the ways to start the first session as buttons in a row."""
    gpus = gpus_here()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content", key="live_start"):
        if gpus.count:
            _start_button()
        with st.popover(
            "Watch another machine's GPU" if gpus.count else "Watch your own GPU",
            icon=":material/sensors:",
            type="secondary" if gpus.count else "primary",
        ):
            if gpus.why_none:
                cards.small(gpus.why_none)
            _push_how()
            _link_to_files()
        if bundled_telemetry() is not None:
            _replay_button("Replay it")


def _link_to_files() -> None:
    frame.link("runs", "Read samples you have: nvidia-smi, DCGM, nvitop or Prometheus", icon=":material/upload:")


def _here() -> None:
    cards.title("Sample the GPUs of this machine")
    cards.small("Samples ten times per second and uses about 1 % of one core. The training job is not changed.")
    _start_button()


def _start_button() -> None:
    if st.button("Start sampling", icon=":material/play_arrow:", type="primary", disabled=local_sampler().pid is not None):
        st.session_state["live_started"] = (start_sampling(), time.time())
        st.rerun()


def _replay() -> None:
    cards.title("Replay a recording")
    cards.small("A ResNet-50 on an H200 that waits for its data loader.")
    _replay_button("Replay the bundled recording")


def _replay_button(label: str) -> None:
    """Offer to replay the bundled recording as a session."""
    if st.button(label, icon=":material/replay:", disabled=local_sampler().pid is not None):
        pid = start_replay()
        if pid is not None:
            st.session_state["live_started"] = (pid, time.time())
        st.rerun()


def _push_how() -> None:
    parts = urlsplit(push_command.server_address())
    cards.title("Watch a GPU of another machine")
    with st.grid(min_column_width=320, gap="medium"):
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
