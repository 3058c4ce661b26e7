"""Runs: what do I have, drop more here."""

from __future__ import annotations

import streamlit as st

from app import cards, frame
from app.drop_zone import drop_zone
from app.format import bytes_, clean, count, markdown, share
from app.jobs import Job
from app.server import jobs
from ingest.schema import Manifest

FIRST_PAGE = 24  # cards before "Show more": about four screens of them
SEARCH_FROM = 9  # with fewer cards a search field is slower than looking
FAILED_SHOWN = 5  # failed files listed; the rest is in the API


def main() -> None:
    """Show the page."""
    manifests = frame.data_folder().manifests()
    _head(manifests)
    with st.container(key="home"):
        drop, mine = st.columns([5, 8], gap="medium")
    with drop:
        started = drop_zone(external_note="Any size; nothing leaves this machine. Files dropped together become one run.")
        if started:
            st.session_state["my_jobs"] = [*st.session_state.get("my_jobs", []), started]
        _job_list()
    with mine:
        _first_pair(manifests)
        _cards(manifests)
        if not manifests:
            _three_ways_in()
    if manifests:
        st.divider()
        _three_ways_in()


def _head(manifests: list[Manifest]) -> None:
    if not manifests:
        cards.headline("Why does the GPU wait?", "Drop a torch.profiler trace and read the answer within seconds.")
    else:
        runs = "run" if len(manifests) == 1 else "runs"
        cards.headline(
            f"{len(manifests)} {runs} on this machine", "Choose one to see why its GPU waits, or select two to compare them."
        )


def _three_ways_in() -> None:
    cards.title("Three ways in")
    with st.grid(min_column_width=300, gap="medium"):
        with st.container():
            cards.small("Drop files on this page: torch.profiler traces (.json, .json.gz) and telemetry.")
            with st.popover("Record a trace in five lines"):
                st.code(_RECORD, language="python")
                cards.small(
                    "record_shapes gives FLOPs and MFU. with_stack=True names the Python line behind each gap, at some cost."
                )
        with st.container():
            cards.small("On the command line:")
            st.code("sawtooth ingest trace.json.gz nvml.jsonl", language=None)
        with st.container():
            cards.small("Live, from the training machine:")
            st.code(f"sawtooth sample --push {_own_address()}", language=None, wrap_lines=True)


_RECORD = """from torch.profiler import profile, schedule, tensorboard_trace_handler

with profile(schedule=schedule(wait=5, warmup=3, active=4), record_shapes=True,
             on_trace_ready=tensorboard_trace_handler("traces", use_gzip=True)) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


def _own_address() -> str:
    return (st.context.url or "http://localhost:8501/").split("?")[0].split("/runs")[0].rstrip("/")


def _job_list() -> None:
    """Show what is being read; refresh while something is."""
    shown = [job for job in jobs().all() if job.active or job.stage == "failed" or _mine(job)]
    if any(job.active for job in shown):
        _watch()
    else:
        for job in shown[: FAILED_SHOWN + 1]:
            _finished(job)


@st.fragment(run_every=0.7)
def _watch() -> None:
    everything = jobs().all()
    active = [job for job in everything if job.active]
    for job in active:
        _running(job)
    for job in [j for j in everything if not j.active and (j.stage == "failed" or _mine(j))][:FAILED_SHOWN]:
        _finished(job)
    if not active:
        st.rerun(scope="app")  # the new run's card appears


def _mine(job: Job) -> bool:
    return job.id in st.session_state.get("my_jobs", [])


def _running(job: Job) -> None:
    words = {"waiting": "waits for its turn", "reading": "is being read", "deriving": "is being analysed"}
    detail = f" · {share(job.progress.share)}" if job.progress.share is not None else ""
    detail += f" · {count(job.progress.events)} events" if job.progress.events else ""
    size = bytes_(sum(file.bytes for file in job.files))
    row, button = st.columns([5, 1], vertical_alignment="center")
    with row:
        cards.small(f"{clean(job.name, 80)} ({size}) {words.get(job.stage, job.stage)}{detail}")
        st.progress(min(max(job.progress.share or 0.0, 0.0), 1.0))
    if button.button("Cancel", key=f"cancel-{job.id}", type="tertiary"):
        jobs().cancel(job.id)
        st.rerun(scope="fragment")


def _finished(job: Job) -> None:
    row, button = st.columns([5, 1], vertical_alignment="center")
    with row:
        if job.stage == "failed":
            cards.problem(f"{clean(job.name, 80)} could not be read", job.outcome.sentence)
        elif job.stage == "cancelled":
            cards.small(f"{clean(job.name, 80)}: cancelled.")
        else:
            cards.small(f"{clean(job.name, 80)} is ready.")
            for notice in job.outcome.notices:
                cards.small(notice)
            for run in job.outcome.run_ids[:4]:
                frame.link("verdict", "See the verdict", run=run, icon=":material/arrow_forward:")
    if button.button("Dismiss", key=f"dismiss-{job.id}", type="tertiary"):
        st.session_state["my_jobs"] = [j for j in st.session_state.get("my_jobs", []) if j != job.id]
        jobs().dismiss(job.id)
        st.rerun(scope="app")


def _first_pair(manifests: list[Manifest]) -> None:
    """Guide a newcomer through the bundled pair, as long as nothing else is here."""
    pair = sorted((m for m in manifests if m.bundled), key=lambda m: m.name)[:2]
    if len(pair) < 2 or any(not m.bundled for m in manifests):
        return
    with st.container(border=True):
        cards.title("Start here: one training run that starves its GPU, and the same run after one change")
        one, two = st.columns(2)
        with one:
            frame.link("verdict", "See why the first one is slow", run=pair[0].id, icon=":material/search:")
        with two:
            frame.link("compare", "See what fixed it", icon=":material/compare_arrows:", a=pair[0].id, b=pair[1].id)


def _cards(manifests: list[Manifest]) -> None:
    if not manifests:
        return
    found = manifests
    if len(manifests) >= SEARCH_FROM:
        wanted = st.text_input("Find a run", placeholder="name, tag or id", key="find_run").strip().lower()
        found = [m for m in manifests if wanted in f"{m.name} {m.id} {' '.join(m.tags)} {m.notes}".lower()]
        if not found:
            cards.small("No run has that in its name, tags, notes or id.")
    chosen = [m for m in manifests if st.session_state.get(f"pick-{m.id}")]
    _compare_bar(chosen)
    shown = st.session_state.get("runs_shown", FIRST_PAGE)
    with st.grid(min_column_width=330, gap="small", key="run_cards"):
        for manifest in found[:shown]:
            _card(manifest, full=len(chosen) >= 2)
    if len(found) > shown and st.button(f"Show {min(FIRST_PAGE, len(found) - shown)} more of {len(found)}"):
        st.session_state["runs_shown"] = shown + FIRST_PAGE
        st.rerun()


def _compare_bar(chosen: list[Manifest]) -> None:
    if len(chosen) == 1:
        cards.small(f"{clean(chosen[0].name, 60)} is selected. Select another run to compare with it.")
    elif len(chosen) >= 2:
        before, after = sorted(chosen[:2], key=lambda m: m.created_ns)
        frame.link(
            "compare",
            f"Compare {markdown(before.name, 40)} with {markdown(after.name, 40)}",
            icon=":material/compare_arrows:",
            a=before.id,
            b=after.id,
        )


def _card(manifest: Manifest, *, full: bool) -> None:
    with st.container(border=True, height="stretch"):
        if frame.screen_named("verdict").exists:
            frame.link("verdict", f"**{markdown(manifest.name, 70)}**", run=manifest.id)
        else:
            cards.title(clean(manifest.name, 70))
        traces, telemetry = len(manifest.traces), len(manifest.telemetry)
        parts = [f"{traces} traces" if traces > 1 else "trace" if traces else "", "telemetry" if telemetry else ""]
        cards.small(" + ".join(p for p in parts if p) + f" · {manifest.id[:6]}")
        cards.tags([*(["bundled"] if manifest.bundled else []), *manifest.tags])
        picked = bool(st.session_state.get(f"pick-{manifest.id}"))
        st.checkbox("Select to compare", key=f"pick-{manifest.id}", disabled=full and not picked)


main()
