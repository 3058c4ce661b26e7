"""The analysis result of the chosen run, computed once and shared by all screens and viewers."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager

import msgspec
import streamlit as st

from sawtooth.analysis.findings.gpu_work import GpuWork
from sawtooth.analysis.result_cache import RESULT, STAIRS, WORK, cached_file, result_of, stairs_of, work_of
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.staircase import Staircase
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.app.format import clean, markdown
from sawtooth.app.jobs.bundled_examples import first_pair
from sawtooth.app.page import cards, frame
from sawtooth.app.runs.card import is_large
from sawtooth.app.server.process import jobs
from sawtooth.app.words.answer.step import UNTRUSTED
from sawtooth.app.words.headline import CUT_OFF_EARLY, headline, is_cut_off, tab_title
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.runs.manifests import edit_run

NOTES_SHOWN = 300  # Characters of the recorder's notes that the page shows; the run's notes contain the full text.
NEXT_RANK = "next_rank"  # Session key: the position of the rank that the next screen shows.
CHECK_INTERVAL_S = 0.7  # Time between two checks whether the child process has finished.
CACHED_RESULTS = 48  # Analysed runs in memory. A result has only a few hundred rows, and most viewers open the same runs.


def run_result(manifest: Manifest | None = None) -> RunResult:
    """Return the analysis of ``manifest``, by default of the chosen run.

    All viewers share the result: do not change it. A child process analyses a large run. Meanwhile the page says so, and it
    updates itself when the analysis is finished. Raises SawtoothError if a recording is missing or damaged.
    """
    chosen = manifest or frame.current_run()
    folder = frame.data_folder()
    cached = cached_file(folder, chosen, RESULT)
    if not cached.exists() and is_large(chosen, folder):
        _wait_for_child(chosen)
    path = folder.manifest_file(chosen.id)
    changed = path.stat().st_mtime_ns if path.exists() else 0
    result = _analysed(str(cached), changed, chosen)
    if manifest is None:
        if frame.remember_gpu_work(chosen.id, worked=result.lead is not None):
            st.rerun()  # Draw the navigation again, because the analysis shows which screens are empty.
        st.set_page_config(page_title=tab_title(result))
    return result


def staircase(result: RunResult) -> Staircase | None:
    """Return the run's staircase: the replayed step for every choice of changes. Viewers share it."""
    folder = frame.data_folder()
    return _stairs(str(cached_file(folder, result.manifest, STAIRS)), result)


@st.cache_resource(max_entries=CACHED_RESULTS, show_spinner="Replaying the step with each choice of changes …")
def _stairs(path: str, _result: RunResult) -> Staircase | None:
    return stairs_of(frame.library(), _result)


def lead_work(result: RunResult) -> GpuWork | None:
    """Return the lead rank's GPU work, with the changes of all findings. Viewers share it.

    None for a run without a rank.
    """
    return _work(str(cached_file(frame.data_folder(), result.manifest, WORK)), result)


@st.cache_resource(max_entries=CACHED_RESULTS, show_spinner="Adding up GPU time …")
def _work(path: str, _result: RunResult) -> GpuWork | None:
    return work_of(frame.library(), _result)


def is_analysed(manifest: Manifest) -> bool:
    """Return whether the run's analysis is already stored, so that reading it takes no noticeable time."""
    return cached_file(frame.data_folder(), manifest, RESULT).exists()


@st.cache_resource(max_entries=CACHED_RESULTS, show_spinner="Analysing the run …")
def _analysed(path: str, changed_ns: int, _manifest: Manifest) -> RunResult:
    return result_of(_manifest, frame.library())


def _wait_for_child(manifest: Manifest) -> None:
    job = jobs().analyse(manifest.id)
    if job.stage == "failed":
        raise SawtoothError(job.outcome.sentence)
    cards.headline(
        "This run is being analysed …", "A trace of this size takes a few seconds, once. The page opens when it is done."
    )
    _look(job.id)
    st.stop()


@st.fragment(run_every=CHECK_INTERVAL_S)
def _look(job_id: str) -> None:
    if not jobs().get(job_id).active:
        st.rerun(scope="app")


def follow_up(manifest: Manifest) -> Manifest | None:
    """Return the run that applied a change to this run, or None.

    The result is the newest run with the tag ``after=NAME`` or ``after=ID``. For the slow run of the bundled pair without
    such a run, it is the fixed run of the pair.
    """
    manifests = frame.data_folder().manifests()
    tags = {f"after={manifest.name}", f"after={manifest.id}"}
    tagged = next((m for m in manifests if m.id != manifest.id and tags & set(m.tags)), None)
    if tagged is not None:
        return tagged
    pair = first_pair(manifests)
    return pair[1] if pair is not None and pair[0].id == manifest.id else None


def rank_label(rank: RankResult) -> str:
    """Return the name of a device in selectors, such as "rank 1 · device 1 · NVIDIA H200"."""
    label = f"rank {rank.rank} · device {rank.device}" if rank.rank is not None else f"device {rank.device}"
    return f"{label} · {clean(rank.device_name, 40)}" if rank.device_name else label


def chosen_rank(result: RunResult) -> RankResult | None:
    """Return the device that the screen shows: the slowest, or the viewer's choice among several.

    The address stores the choice as ``device``.
    """
    if (withdrawn := result.withdrawn_by) is not None:
        cards.caution(f"{withdrawn.headline} {withdrawn.sentence}")
    if len(result.ranks) < 2:
        return result.lead
    lead = next((i for i, rank in enumerate(result.ranks) if rank is result.lead), 0)
    order = [lead, *(i for i in range(len(result.ranks)) if i != lead)]
    if (position := st.session_state.pop(NEXT_RANK, None)) is not None:
        st.query_params["device"] = position
    names = {str(i): rank_label(result.ranks[i]) + (" (slowest)" if i == lead else "") for i in order}
    chosen = st.selectbox("Device", list(names), format_func=lambda i: names[i], key="device", bind="query-params")
    return result.ranks[int(chosen)]


def choose_rank(position: int) -> None:
    """Make the rank at ``position`` the ``chosen_rank`` of the next screen.

    The choice is stored in the session, because the browser may drop a parameter that is written before that screen starts.
    """
    st.session_state[NEXT_RANK] = str(position)


def opened(rank: RankResult, *, sums: bool = False) -> AbstractContextManager[RankView]:
    """Open a rank of the run; ``sums`` means the same as in ``Library.open``."""
    return open_rank(frame.library(), rank, sums=sums)


def key_of(rank: RankResult) -> tuple[object, ...]:
    """Return a cache key that identifies the tables of one rank."""
    causes = ((cause, part.total) for cause, part in rank.exposed_causes.items())
    return (str(frame.data_folder().root), rank.recording_id, rank.device, *causes)


def what_is_missing(result: RunResult, *, beside_answer: bool = False) -> None:
    """Say why no GPU work is known: the trace is cut off, it has no GPU work, or the run has no trace.

    Also links to the answer on the Verdict, unless the page shows it already (``beside_answer``).
    """
    if is_cut_off(result):
        cards.empty_state(CUT_OFF_EARLY[0], f"{CUT_OFF_EARLY[1]} {CUT_OFF_EARLY[2]}")
    elif result.manifest.traces and result.withdrawn_by is None:  # Otherwise the headline says why there is no GPU work.
        no_gpu_work(result.manifest)
    elif not result.manifest.traces:
        no_trace(result, beside_answer=beside_answer)
    if not beside_answer and (result.host is not None or result.findings):
        frame.link("verdict", f"On the Verdict: {markdown(headline(result))}", run=result.manifest.id, icon=":material/gavel:")


def untrusted(result: RunResult, rank: RankResult) -> bool:
    """Return whether the GPU times of ``rank`` failed a check; if so, say it and link to the remedy."""
    if rank.ledger:
        return False
    cards.headline(UNTRUSTED)  # A caution above the headline gives the reason.
    frame.link("verdict", "How to record them", run=result.manifest.id, icon=":material/arrow_forward:")
    return True


def no_gpu_work(manifest: Manifest) -> None:
    """Say that the run has no GPU work, and how to record it if a GPU trains.

    A run of `sawtooth run` gets no such advice, because that command always records the GPU work that exists.
    """
    if manifest.recorded_command:
        cards.empty_state(
            "This training ran on the CPU.",
            "`sawtooth run` found no GPU activity to record. The Verdict, the Timeline and SQL show what the host does.",
        )
        return
    cards.empty_state(
        "No GPU work is recorded in this run.",
        "If the training ran on the CPU, this is right: the Verdict, the Timeline and SQL show what the host does. If a GPU trained, record its activity too:",
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:",
        "python",
    )


def no_trace(result: RunResult, *, beside_answer: bool = False) -> None:
    """Say that the run has no trace (only telemetry or step marks), and how to add one.

    With ``beside_answer`` the page already shows why the run failed, so this text leaves it out.
    """
    if any(ref.kind == "memory" for ref in result.manifest.recordings) and not result.manifest.telemetry:
        cards.empty_state(
            "This run has a memory snapshot only: no trace and no telemetry.",
            "The snapshot shows what uses the memory. A trace shows where the time goes. Record both and drop them together:",
            "sawtooth run --memory train.py",
        )
        frame.link("memory", "What uses the memory", run=result.manifest.id, icon=":material/memory:")
        return
    if not result.manifest.telemetry:
        missing = result.manifest.notes.splitlines()[1:] if result.manifest.recorded_command else []
        why = clean(" ".join(missing) or "The profile was turned off, or the loop ended before one began.", NOTES_SHOWN)
        if beside_answer and (failure := result.manifest.failure) is not None:
            why = clean(" ".join(line for line in missing if line != failure), NOTES_SHOWN)
        cards.empty_state(
            "This run has step marks only: no trace and no telemetry.",
            f"{why} A profile shows where the time of a step goes. Record one as soon as the loop runs:".lstrip(),
            f"sawtooth run --after 0.5 {shlex.join(result.manifest.recorded_command) or 'train.py'}",
        )
        return
    cards.empty_state(
        "This run has telemetry and no trace.",
        "Telemetry shows how much of the time the GPU works; a trace shows why. Record a trace of a few steps, and drop both files together:",
        "with torch.profiler.profile(record_shapes=True) as profiler:\n    for batch in loader:\n        train_step(batch)\n"
        '        profiler.step()\nprofiler.export_chrome_trace("trace.json.gz")',
        "python",
    )


def keep_recording(manifest: Manifest, ref: RecordingRef) -> None:
    """Store a recording's corrected clock (``ref``) in the run."""
    edit_run(
        frame.data_folder(),
        manifest.id,
        lambda run: msgspec.structs.replace(run, recordings=[ref if r.id == ref.id else r for r in run.recordings]),
    )


def keep_facts(manifest: Manifest, facts: dict[str, float | None]) -> None:
    """Store facts that only the viewer knows in the run; None removes a fact."""
    edit_run(
        frame.data_folder(),
        manifest.id,
        lambda run: msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, **facts)),
    )
