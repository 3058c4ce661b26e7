"""Evidence for lost time: confidence, phase, operator, call, Python frame, and one sentence."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.columns import categorical
from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import HostFacts, matches_of
from sawtooth.analysis.derive.lost.host_location import place_of
from sawtooth.analysis.derive.lost.phase_lookup import PHASES, phase_of_pieces
from sawtooth.analysis.derive.lost.schedule import CODE, LostIntervals, Pieces, Schedule
from sawtooth.analysis.derive.lost.sentences import MAX_SENTENCES, sentences
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS, CAUSES
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.simulation import I64, NEVER

CONFIDENCES = ("high", "medium", "low")
SYSTEM_CALL = re.compile(r" \(operating system\)$")  # Stored like a Python call, but not a frame.


def describe(
    *,
    events: TraceEvents,
    facts: HostFacts,
    view: HostView,
    schedule: Schedule,
    lost: LostIntervals,
    pieces: Pieces,
    step_starts: I64,
    step_ends: I64,
    most_sentences: int = MAX_SENTENCES,
) -> pd.DataFrame:
    """Return the rows of the derived table ``gaps`` without the device; times are relative to the origin.

    Columns: gap, start, end, owner, cause, phase, confidence, step (index in ``step_starts``, -1 outside all steps),
    next_gpu_op_id, cpu_op_id, call_id, python_call_id (-1 if there is none) and evidence (a sentence for the ``most_sentences``
    longest pieces, else None).
    """
    place = place_of(events, facts, view, pieces, lost.owner[pieces.gap] != OWNER_KEYS.index("idle"))
    table = pd.DataFrame(
        {
            "gap": pieces.gap, "start": pieces.start, "end": pieces.end, "owner": categorical(lost.owner[pieces.gap], OWNER_KEYS),
            "cause": categorical(pieces.cause, CAUSE_KEYS), "phase": categorical(phase_of_pieces(events, facts, view, pieces, place), PHASES),
            "confidence": _confidence(events, facts, schedule, pieces), "step": _step_of(pieces.start, step_starts, step_ends),
            "next_gpu_op_id": pieces.next_op, "cpu_op_id": place.op, "call_id": place.call, "python_call_id": place.frame,
        }
    )  # fmt: skip
    return table.assign(evidence=sentences(events, facts, schedule, table, most_sentences))


def _step_of(start: I64, step_starts: I64, step_ends: I64) -> I64:
    at = np.searchsorted(step_starts, start, side="right") - 1
    if not len(step_starts):
        return at
    return np.where((at >= 0) & (start < step_ends[np.maximum(at, 0)]), at, -1)


def _confidence(events: TraceEvents, facts: HostFacts, schedule: Schedule, pieces: Pieces) -> pd.Categorical:
    """Return the confidence of each piece's cause.

    It is high if host events or the queue prove the cause, medium if the cause is inferred, and low for the remaining time.
    """
    cause = pieces.cause
    linked = (
        (pieces.next_op >= 0) & (schedule.submitted[pieces.next_op] > NEVER)
        if len(schedule.submitted)
        else np.zeros(len(pieces), bool)
    )
    high, medium = CONFIDENCES.index("high"), CONFIDENCES.index("medium")
    level = np.where(linked, high, medium).astype(np.int8)
    if matches_of(events.names, SYSTEM_CALL)[facts.python_name].all():
        level[cause == CODE["python_host"]] = medium  # Without recorded frames, python_host is only the remaining time.
    carried = pieces.wait_call >= 0
    is_far = (
        carried
        & (np.where(carried, pieces.start - events.calls.end[pieces.wait_call], 0) > 10 * (pieces.end - pieces.start).clip(1))
        if len(events.calls)
        else carried
    )
    level[is_far] = medium  # The wait ended much earlier than the idle time that the wait explains.
    for row in CAUSES:
        if row.confidence != "high":
            level[cause == CODE[row.key]] = CONFIDENCES.index(row.confidence)
    return categorical(level, CONFIDENCES)
