"""The Live screen: the GPUs of this host and of pushing hosts now, and how a session becomes a run."""

from __future__ import annotations

import re
import time

import streamlit as st

from sawtooth.app import format as fmt
from sawtooth.app.live.example import example
from sawtooth.app.live.finish import delete, finish, live_sessions
from sawtooth.app.live.gpu import LiveGpu
from sawtooth.app.live.info import SessionInfo, session_info, sessions
from sawtooth.app.live.sessions import LiveSession
from sawtooth.app.live.words import (
    about_session,
    averages_sentence,
    sawtooth_sentence,
    sentence,
    step_rate_sentence,
    utilization_and_memory_sentence,
)
from sawtooth.app.page import cards, frame
from sawtooth.app.page.live import chart as live_chart
from sawtooth.app.page.live import picture as live_picture
from sawtooth.app.page.live import session_start
from sawtooth.app.server.local_sampler import bundled_telemetry, gpus_here, local_sampler
from sawtooth.app.server.process import jobs
from sawtooth.app.settings import settings

EVERY_SECONDS = 1.0  # Time between two updates; often enough to follow a training, and a sampler sends ten samples per second.
WINDOWS = {"10 s": 10.0, "1 min": 60.0, "5 min": 300.0, "Whole session": 0.0}
NUMBER = re.compile(r"[0-9]{1,4}")  # str.isdigit() would also accept ².
MAX_FINDINGS = 3  # Findings shown in full. With more, the chart would not be visible without scrolling.
# The first sample may wait for the driver to wake up. After a longer time, the page reports a problem.
STARTS_WITHIN_SECONDS = 15.0


def main() -> None:
    """Show the page."""
    _open_finished_run()
    local_sessions = sessions(settings().data.create().live)
    _open_started_session(local_sessions)
    chosen = _chosen_session(local_sessions)
    if chosen is None:
        _example()
    else:
        _session(chosen, local_sessions)
        st.divider()
        session_start.show()


def _chosen_session(local_sessions: list[SessionInfo]) -> SessionInfo | None:
    in_address = st.query_params.get("session")
    if in_address and in_address not in {info.id for info in local_sessions}:
        cards.problem(
            "This server has no such session", "It may have been removed, or its sampler pushes to another dashboard."
        )
        return None
    if in_address:
        return next(info for info in local_sessions if info.id == in_address)
    if local_sessions and local_sessions[0].live(time.time()):
        st.query_params["session"] = local_sessions[0].id  # The viewer can then copy the address.
        return local_sessions[0]
    return local_sessions[0] if local_sessions else None


def _session(info: SessionInfo, local_sessions: list[SessionInfo]) -> None:
    live = info.live(time.time())
    session = live_sessions().get(info.id)
    if session is None or session.last_ns is None:
        cards.headline("The session has started and is waiting for its first sample.", about_session(info))
        _wait_for_session()
        return
    st.fragment(_picture, run_every=EVERY_SECONDS if live else None)(info.id, live, [(i.id, _label(i)) for i in local_sessions])
    if st.session_state.get("live_job"):
        _follow_job()


def _controls(info: SessionInfo, session: LiveSession, here: list[tuple[str, str]], live: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="live_controls"):
        st.session_state["live_window"] = _window()
        st.segmented_control(
            "Window", list(WINDOWS), key="live_window", on_change=_follow, args=("window", "live_window"), required=True
        )
        if len(session.gpus) > 1:
            st.session_state["live_gpu"] = _gpu(session).device
            st.selectbox(
                "GPU",
                sorted(session.gpus),
                format_func=lambda device: f"GPU {device}",
                key="live_gpu",
                on_change=_follow,
                args=("gpu", "live_gpu"),
                width=140,
            )
        if len(here) > 1:
            labels = dict(here)
            st.session_state["live_session"] = info.id
            st.selectbox(
                "Session",
                list(labels),
                format_func=labels.__getitem__,
                key="live_session",
                on_change=_follow,
                args=("session", "live_session"),
                width=360,
            )
        _end_buttons(info, live)


def _follow(name: str, key: str) -> None:
    value = st.session_state.get(key)
    if value is not None:
        st.query_params[name] = str(value)
        if name == "session":
            st.query_params.pop("gpu", None)


def _window() -> str:
    """Return the label of the window in the address, by default one minute."""
    label = st.query_params.get("window")
    return label if label in WINDOWS else "1 min"


def _gpu(session: LiveSession) -> LiveGpu:
    """Return the GPU that the address names, by default the first one."""
    number = st.query_params.get("gpu", "")
    return session.gpus.get(int(number) if NUMBER.fullmatch(number) else -1) or session.gpus[min(session.gpus)]


def _label(info: SessionInfo) -> str:
    state = "live" if info.live(time.time()) else "ended"
    return fmt.clean(f"{state} · {info.name or info.host} · {fmt.day_and_time(info.started_ns)}", 70)


def _picture(session_id: str, was_live: bool, here: list[tuple[str, str]]) -> None:
    """Draw the current state of the session; runs again each second while the session is live."""
    if st.query_params.get("session", session_id) != session_id:  # The viewer chose another session.
        st.rerun(scope="app")
    session = live_sessions().get(session_id)
    info = session_info(settings().data.live / session_id)
    if session is None or info is None or info.live(time.time()) != was_live:
        st.rerun(scope="app")
        return
    gpu = _gpu(session)
    tooth = session.sawtooth(gpu.device)
    period = tooth.period_s if tooth else None
    drawn = live_picture.picture(session, gpu, WINDOWS[_window()], dark=frame.is_dark(), period_s=period)
    # Separate places, so that a change in one does not move the others. The numbers come first, so that a phone shows them.
    head, now, known = st.container(), st.container(key="live_now"), st.container()
    chosen, middle, below = st.container(), st.container(key="live_picture"), st.container()
    with head:
        cards.headline(sentence(session, gpu, tooth, live=was_live), about_session(info, session, was_live))
    with now:
        picked = live_chart.show(live_picture.numbers_of(drawn), f"live-now-{session_id}")
    with known:
        _findings(session)
        cards.text(
            " ".join(filter(None, (step_rate_sentence(session, gpu, tooth), utilization_and_memory_sentence(session, gpu))))
        )
    with chosen:
        _controls(info, session, here, was_live)
    with middle:
        live_chart.show(live_picture.lines_of(drawn), f"live-chart-{session_id}")
    with below:
        cards.small(averages_sentence(session, gpu))
        if tooth is not None:
            cards.small(sawtooth_sentence(tooth, gpu))
    if picked is not None and picked != gpu.device:
        st.query_params["gpu"] = str(picked)
        st.rerun(scope="fragment")


def _findings(session: LiveSession) -> None:
    """Show alerts, and the findings that the report of a finished recording would contain."""
    shown = [finding for finding in session.findings() if finding.observation.severity != "info"]
    named = {
        f"GPU {device} is throttled" for f in shown if "throttling" in f.observation.kind for device in f.observation.devices
    }
    for alert in session.alerts():  # Alerts appear at once. A later finding explains the same problem in more detail.
        if not any(alert.startswith(gpu) for gpu in named):
            cards.caution(alert)
    for finding in shown[:MAX_FINDINGS]:
        cards.caution(f"{finding.sentence} {finding.observation.evidence}")
    if len(shown) > MAX_FINDINGS:
        cards.small(f"{len(shown) - MAX_FINDINGS} more: " + " ".join(f.sentence for f in shown[MAX_FINDINGS:]))


def _end_buttons(info: SessionInfo, live: bool) -> None:
    ours = info.pid is not None and info.pid == local_sampler().pid
    label = "Finish and analyse" if live and ours else "Analyse so far" if live else "Analyse"
    goes_on = " The sampler keeps running; stop it where it was started." if live and not ours else ""
    if st.button(label, type="primary", help=f"Makes the samples a run and opens its telemetry.{goes_on}"):
        name = info.name or f"{info.host} {time.strftime('%Y-%m-%d %H:%M', time.gmtime(info.started_ns / 1e9))}"
        st.session_state["live_job"] = finish(info, fmt.clean(name, 80)).id
        st.rerun()
    if not live:
        with st.popover("Delete session", icon=":material/delete:"):
            cards.small("This removes the session's samples from this server. A run that was made from them stays.")
            if st.button("Delete", key="live_delete"):
                delete(info)
                st.query_params.pop("session", None)
                st.rerun()
    if live and ours and st.button("Stop", icon=":material/stop:"):
        local_sampler().stop()
        st.rerun()


@st.fragment(run_every=0.5)
def _follow_job() -> None:
    """Follow the job that reads the session, and open its run when it is ready."""
    job = next((j for j in jobs().all() if j.id == st.session_state.get("live_job")), None)
    if job is None:
        st.session_state.pop("live_job", None)
        cards.problem(
            "Reading the samples was interrupted", "The server was restarted. Nothing is lost; press the button again."
        )
    elif job.active:
        cards.small("The samples are being read.")
        st.progress(min(max(job.progress.share or 0.0, 0.0), 1.0))
    elif job.stage == "done" and job.outcome.run_ids:
        st.rerun(scope="app")
    else:
        cards.problem("The session could not be read", job.outcome.sentence or "The reading was cancelled.")


def _open_finished_run() -> None:
    """Open the run that was made from the session, if its job has finished."""
    job = next((j for j in jobs().all() if j.id == st.session_state.get("live_job")), None)
    if job is not None and job.stage == "done" and job.outcome.run_ids:
        st.session_state.pop("live_job")
        frame.switch("telemetry", run=job.outcome.run_ids[0])


def _open_started_session(local_sessions: list[SessionInfo]) -> None:
    """Show the session of the sampler that was just started, as soon as its folder exists."""
    waited: tuple[int, float] | None = st.session_state.get("live_started")
    if waited is None:
        return
    session = next((info for info in local_sessions if info.pid == waited[0] and info.grown_s >= waited[1] - 1), None)
    if session is not None:
        st.query_params["session"] = session.id
    if session is None and local_sampler().trouble is None and time.time() - waited[1] < STARTS_WITHIN_SECONDS:
        cards.small("The sampler is starting …")
        _wait_for_session()
        return
    st.session_state.pop("live_started")
    if session is None:
        cards.problem(
            "The sampler did not start", local_sampler().trouble or "It wrote no sample. Try it in a terminal: sawtooth sample"
        )


@st.fragment(run_every=0.7)
def _wait_for_session() -> None:
    if st.session_state.get("live_waited"):
        st.session_state["live_waited"] = False
        st.rerun(scope="app")
    st.session_state["live_waited"] = True


def _example() -> None:
    """Show the bundled recording as an example of a session, and the ways to start one's own."""
    gpus = gpus_here()
    gpus_note = f"{fmt.many(gpus.count, 'GPU')} on this machine can be sampled. " if gpus.count else ""
    recording = bundled_telemetry()
    session = example(recording) if recording is not None else None
    if session is None:
        cards.headline("No session yet", f"{gpus_note}A session shows the GPUs of a machine, updated every second.")
        session_start.buttons()
        return
    gpu = session.gpus[min(session.gpus)]
    tooth = session.sawtooth(gpu.device)
    period = tooth.period_s if tooth else None
    drawn = live_picture.picture(session, gpu, WINDOWS["Whole session"], dark=frame.is_dark(), period_s=period)
    with st.container(key="live_head"):
        cards.headline(f"Example: {sentence(session, gpu, tooth, live=False)}")
    with st.container(key="live_example_now"):
        live_chart.show(live_picture.numbers_of(drawn), "live-example-now")
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="small"):
        with st.container(width="stretch", key="live_about"):
            cards.text(
                f"A ResNet-50 on an H200 waits for its data loader. {gpus_note}A session of your own is updated every second."
            )
        session_start.buttons()
    live_chart.show(live_picture.lines_of(drawn), "live-example-lines")
    cards.small(averages_sentence(session, gpu))


main()
