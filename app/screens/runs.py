"""The Runs screen: the runs on this server, and the drop zone for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from sawtooth.app.format import bytes_, clean, count, many, share
from sawtooth.app.jobs.bundled_examples import first_pair
from sawtooth.app.jobs.first_answer import FirstAnswer, first_answer
from sawtooth.app.jobs.queue import IngestJob
from sawtooth.app.page import cards, frame
from sawtooth.app.page.drop_zone import drop_zone, forget, own_jobs
from sawtooth.app.page.live import push_command
from sawtooth.app.page.runs import listing as run_list
from sawtooth.app.page.runs.proposals import proposals
from sawtooth.app.page.runs.table import step_of
from sawtooth.app.runs import listing
from sawtooth.app.runs.card import Card, stored_card
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.server.process import jobs
from sawtooth.ingest.manifest import Manifest

FAILED_SHOWN = 5  # Failed files in the list; the API has the others.

CHECK_INTERVAL_S = 0.5  # Time between two checks for new runs that did not come through this page.


def main() -> None:
    """Show the page."""
    shown = _state()
    manifests = listing.listed(frame.data_folder().manifests())
    with st.container(key="runs_head"):
        head = st.empty()
    cards_before = _known_cards(manifests)
    with head.container():
        _head(manifests, cards_before)
    drop_zone(note="Any size; nothing leaves this machine. Files dropped together become one run.", compact=bool(manifests))
    if len(manifests) >= run_list.SEARCH_FROM:
        # Child processes analyse the runs without a card, so that the list is shown at once, for example after an upgrade.
        # Before the list of jobs, so that the list contains the jobs that this starts.
        for manifest in manifests[: run_list.FIRST_PAGE]:
            run_list.known(manifest, at_once=False)
    _job_list()
    proposals(manifests)
    _first_pair(manifests)
    run_list.show(manifests)
    if len(cards_now := _known_cards(manifests)) > len(cards_before):  # The list has analysed the runs without a card.
        with head.container():
            _head(manifests, cards_now)
    _examples(manifests)
    _three_ways_in()
    _arrivals(shown)


def _state() -> tuple[object, ...]:
    """Return the state that determines the listed runs: manifests on disk and active jobs."""
    files = sorted((file.name, file.stat().st_mtime_ns) for file in frame.data_folder().runs.glob("*.json"))
    return (*files, *sorted(job.id for job in jobs().all() if job.active))


@st.fragment(run_every=CHECK_INTERVAL_S)
def _arrivals(shown: tuple[object, ...]) -> None:
    """Show the page again when a run appears or disappears, for any reason."""
    if _state() != shown:
        st.rerun(scope="app")


def _known_cards(manifests: list[Manifest]) -> dict[str, Card]:
    return {m.id: card for m in manifests if (card := stored_card(m, frame.data_folder())) is not None}


def _head(manifests: list[Manifest], cards_by_id: Mapping[str, Card]) -> None:
    example = _example(manifests)
    names = distinct_names(frame.data_folder().manifests(), 40)
    gains = [
        (names[m.id], step_of(cards_by_id[m.id]), cards_by_id[m.id].after, cards_by_id[m.id].changes)
        for m in manifests
        if m.id in cards_by_id and not listing.tries(m)
    ]
    if example is not None and len(cards_by_id) == len(manifests) and (most := listing.most_to_gain(gains)) is not None:
        cards.headline(most, "These runs are examples. Drop a trace of yours to read its own answer.")
    elif example is not None:
        about = f"This is the answer for the example {clean(example.name, 40)}. Drop a trace of yours to read its own answer."
        cards.headline(example.headline, f"{example.state} {about}".strip())
    elif all(m.bundled for m in manifests):
        under = "Drop a torch.profiler trace and read the answer within seconds."
        if any(job.active for job in jobs().all()):
            under += " An example is being read; its answer appears here."
        cards.headline("Why does the GPU wait?", under)
    else:
        runs = "run" if len(manifests) == 1 else "runs"
        lost_to = [card.lost_to for card in cards_by_id.values()]
        answer = listing.most_to_gain(gains) or listing.headline(lost_to) if len(cards_by_id) == len(manifests) else None
        cards.headline(
            answer or f"{len(manifests)} {runs} on this machine",
            "Click a run for its Verdict, or select two to compare them.",
        )


def _example(manifests: list[Manifest]) -> FirstAnswer | None:
    """Return the example's answer for a new user's page; None if the user has own runs.

    While the example is being read, the result is the answer that ships with Sawtooth.
    """
    if not all(m.bundled for m in manifests):
        return None
    pair = first_pair(manifests)
    slow = pair[0] if pair else next((m for m in manifests if stored_card(m, frame.data_folder())), None)
    card = stored_card(slow, frame.data_folder()) if slow is not None else None
    if slow is not None and card is not None:
        return FirstAnswer(slow.name, card.headline, card.state)
    return first_answer() if any(job.alone and job.active for job in jobs().all()) else None


def _three_ways_in() -> None:
    cards.title("Three ways to add a run")
    with st.grid(min_column_width=320, gap="small"):
        with st.container(gap="xsmall"):
            cards.show_bold("Drop files on this page")
            cards.small("torch.profiler traces (.json, .json.gz), Nsight Systems exports (.sqlite) and telemetry.")
            with st.popover("Record a trace in five lines"):
                st.code(_RECORD, language="python")
                cards.small(
                    "record_shapes=True is needed for FLOPs and MFU. with_stack=True adds the Python line behind each gap, at some cost."
                )
        with st.container(gap="xsmall"):
            cards.show_bold("On the command line")
            cards.small("Record a training, or read files that you have.")
            st.code(
                "sawtooth run train.py --epochs 3\nsawtooth ingest trace.json.gz nvml.jsonl", language=None, wrap_lines=True
            )
        with st.container(gap="xsmall"):
            cards.show_bold("Live, from the training machine")
            cards.small("The samples of its GPUs appear on the Live page.")
            push_command.show("runs")


_RECORD = """from torch.profiler import profile, schedule, tensorboard_trace_handler

with profile(schedule=schedule(wait=5, warmup=3, active=4, repeat=1), record_shapes=True,
             on_trace_ready=tensorboard_trace_handler("traces", use_gzip=True)) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


def _job_list() -> None:
    """Show the jobs, and refresh the list while a job is active."""
    shown = [job for job in jobs().all() if job.active or job.stage == "failed" or _is_own(job)]
    if any(job.active for job in shown):
        _watch()
    else:
        for job in shown[: FAILED_SHOWN + 1]:
            _finished_job(job)


@st.fragment(run_every=0.7)
def _watch() -> None:
    everything = jobs().all()
    active = [job for job in everything if job.active]
    repeated = [job for job in active if job.analyses]
    for job in active if len(repeated) == 1 else [job for job in active if not job.analyses]:
        _running_job(job)
    if len(repeated) > 1:  # This happens after an upgrade.
        cards.small(f"{len(repeated)} runs are being analysed. The list shows each answer when it is known.")
    for job in [j for j in everything if not j.active and (j.stage == "failed" or _is_own(j))][:FAILED_SHOWN]:
        _finished_job(job)


def _is_own(job: IngestJob) -> bool:
    return job.id in own_jobs()


def _row_and_button() -> tuple[Any, Any]:
    """Return the places of a job's state and of its button, side by side on every page."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        return st.container(gap="xsmall", width="stretch"), st.container(width="content")


def _running_job(job: IngestJob) -> None:
    words = {"waiting": "waits for its turn", "reading": "is being read", "deriving": "is being analysed"}
    detail = f" · {share(job.progress.share)}" if job.progress.share is not None else ""
    detail += f" · {count(job.progress.events)} events" if job.progress.events else ""
    size = bytes_(sum(file.bytes for file in job.files))
    row, button = _row_and_button()
    with row:
        cards.small(f"{clean(job.name, 80)}{f' ({size})' if job.files else ''} {words.get(job.stage, job.stage)}{detail}")
        if job.progress.seen:
            cards.small(clean(job.progress.seen, 200))
        st.progress(min(max(job.progress.share or 0.0, 0.0), 1.0))
    if button.button("Cancel", key=f"cancel-{job.id}", type="tertiary"):
        jobs().cancel(job.id)
        st.rerun(scope="fragment")


def _finished_job(job: IngestJob) -> None:
    row, button = _row_and_button()
    with row:
        if job.stage == "failed":
            failed = "analysed" if job.outcome.run_ids else "read"
            cards.problem(f"{clean(job.name, 80)} could not be {failed}", job.outcome.sentence)
            for notice in job.outcome.notices:
                cards.small(notice)
        elif job.stage == "cancelled":
            cards.small(f"{clean(job.name, 80)}: cancelled.")
        else:
            cards.small(f"{_run_names(job) or clean(job.name, 80)} is ready.")
            for notice in job.outcome.notices:
                cards.small(notice)
            for run in job.outcome.run_ids[:4]:
                frame.link("verdict", "See the verdict", run=run, icon=":material/arrow_forward:")
    if button.button("Dismiss", key=f"dismiss-{job.id}", type="tertiary"):
        forget(job.id)
        jobs().dismiss(job.id)
        st.rerun(scope="app")


def _run_names(job: IngestJob) -> str:
    """Return the names of a job's runs; "" if they no longer exist."""
    names = distinct_names(frame.data_folder().manifests(), 80)
    return ", ".join(names[run] for run in job.outcome.run_ids if run in names)


def _examples(manifests: list[Manifest]) -> None:
    """Show links to the examples that are no longer in the list of runs."""
    removed = [m for m in frame.data_folder().manifests() if m.bundled and m not in manifests]
    if not removed:
        return
    cards.small(
        f"Your own runs hide {many(len(removed), 'example')}. {'It is' if len(removed) == 1 else 'They are'} still here:"
    )
    with st.container(horizontal=True, gap="medium", key="examples"):
        for example in sorted(removed, key=lambda m: -m.created_ns):
            frame.link("verdict", clean(example.name, 40), run=example.id, icon=":material/school:")


def _first_pair(manifests: list[Manifest]) -> None:
    """Guide a new user through the bundled pair as long as there are no other runs."""
    pair = first_pair(manifests) if all(m.bundled for m in manifests) else None
    if pair is None:
        return
    slow, fixed = pair
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="start_here"):
        cards.text("Start here: a run whose GPU waits for data, and the same run after one change.")
        frame.link("verdict", "See why it is slow", run=slow.id, icon=":material/search:")
        frame.link("compare", "See what fixed it", icon=":material/compare_arrows:", a=slow.id, b=fixed.id)


main()
