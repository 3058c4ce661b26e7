"""The user's own source line behind a recorded Python call.

The search goes up the stack, past the frames of PyTorch, of libraries and of Python itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.events import names_of
from sawtooth.analysis.derive.host import HostFacts, load_host_facts
from sawtooth.analysis.derive.host_only import own_functions
from sawtooth.analysis.intervals import union
from sawtooth.analysis.knowledge.frames import FRAME, is_user_line, readable_frame, without_line
from sawtooth.analysis.store.library import Recording

MAX_FRAMES = 200  # Deeper stacks are recursion, and its line would not help.
_AT_HOST_EVENT = """
WITH begun AS (SELECT thread_id FROM python_calls WHERE start_ns = $start UNION SELECT thread_id FROM runtime_calls WHERE start_ns = $start
    UNION SELECT thread_id FROM cpu_ops WHERE start_ns = $start)
SELECT python_call_id FROM python_calls JOIN begun USING (thread_id) WHERE start_ns <= $start AND start_ns + dur_ns > $start
ORDER BY start_ns DESC, dur_ns LIMIT 1"""

# Autograd's own thread has no Python calls. The thread that requested the backward pass is inside the call that runs it.
_BACKWARD = """
WITH moment AS (SELECT coalesce(
    (SELECT min(o.start_ns) FROM gaps p JOIN cpu_ops o USING (cpu_op_id) WHERE p.device = $device AND p.start_ns = $start),
    (SELECT min(c.start_ns) FROM gpu_ops g JOIN runtime_calls c USING (call_id) WHERE g.device = $device AND g.start_ns = $start), $start) AS ns)
SELECT python_call_id FROM moment, python_calls JOIN names USING (name_id)
WHERE start_ns <= moment.ns AND start_ns + dur_ns > moment.ns AND contains(name, 'run_backward') ORDER BY start_ns DESC, dur_ns LIMIT 1"""

# The trace names a call that was already open at the start of the recording by its current line. Such calls began before the
# first call of their thread ended.
_OPEN = """
WITH ended AS (SELECT thread_id, min(start_ns + dur_ns) AS first_ns FROM python_calls GROUP BY thread_id)
SELECT DISTINCT name FROM python_calls JOIN ended USING (thread_id) JOIN names USING (name_id) WHERE start_ns < first_ns"""


def stale_lines(recording: Recording) -> set[str]:
    """Return the frames that were open when the recording began.

    Their line is where execution was at that time, such as the optimizer's step. All other frames have the first line of
    their function.
    """
    return recording.once(_stale_lines)  # This reads all Python calls, and each piece of evidence needs it.


def _stale_lines(recording: Recording) -> set[str]:
    return {str(name) for (name,) in recording.rows(_OPEN) if FRAME.match(str(name))}


def without_stale_lines(recording: Recording, names: Sequence[str]) -> list[str]:
    """Return the frames, without their line number if it is not the line of the function's definition."""
    stale = stale_lines(recording) if names else set()
    return [without_line(name) if name in stale else name for name in names]


def user_stack(recording: Recording, device: int, start_ns: int) -> tuple[str, ...]:
    """Return the user's own frames at the event that begins at ``start_ns``, outermost first.

    The event is a piece of lost time, a GPU operation (its launch), or a host event such as a Python or driver call. For
    events of autograd's own thread, which has no Python calls, these are the frames that called the backward pass. Empty if
    the trace has no Python calls, or if none was open.
    """
    return tuple(
        without_stale_lines(recording, [name for _, name in _frames(recording, device, start_ns) if is_user_line(name)])
    )


def common_line(recording: Recording, device: int, starts_ns: Sequence[int]) -> str | None:
    """Return the user's innermost frame that was open at all of ``starts_ns``: the line of the loop.

    ``starts_ns`` are starts as in ``user_stack``.
    """
    stacks = [_frames(recording, device, start) for start in starts_ns]
    shared = set.intersection(*(set(stack) for stack in stacks)) if stacks else set()
    lines = [name for call, name in stacks[0] if (call, name) in shared and is_user_line(name)] if shared else []
    return readable_frame(without_stale_lines(recording, lines[-1:])[0]) if lines else None


def first_user_line(places: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the first line of the user's own code among ``places`` in words; None if there is none.

    ``places`` are sorted, longest first. The text says "most" only for the first place.
    """
    at = next((number for number, place in enumerate(places) if is_user_line(str(place["place"]))), None)
    return None if at is None else f"{'part of it' if at else 'most'} at {readable_frame(str(places[at]['place']))}"


def heaviest_function(recording: Recording, device: int, *causes: str) -> str | None:
    """Return in words the user's function with most of the time lost to ``causes``.

    The function's time includes the library code that it calls. None without Python calls. ``first_user_line`` is less exact,
    because it shows only where the host was in the middle of each gap, and a long gap covers many functions.
    """
    gaps = recording.frame(
        "SELECT g.start_ns, g.end_ns, p.thread_id FROM gaps g LEFT JOIN python_calls p USING (python_call_id) "
        "WHERE g.device = ? AND list_contains(?, g.cause)",
        [device, list(causes)],
    )
    threads = gaps["thread_id"].dropna()
    if not len(threads):
        return None
    lost = union(gaps["start_ns"].to_numpy(np.int64), gaps["end_ns"].to_numpy(np.int64))
    names, host = recording.once(_host_facts)
    functions = own_functions(names, host, int(threads.mode()[0]), lost, union([], []))
    if not functions:
        return None
    name, ns = functions[0]
    return f"{'most' if 2 * ns > lost.total else 'part of it'} at {readable_frame(name)}"


def _host_facts(recording: Recording) -> tuple[list[str], HostFacts]:
    return names_of(recording.cursor), load_host_facts(recording.cursor, 0)


def dominant_line(recording: Recording, python_calls: pd.DataFrame) -> str | None:
    """Return the user's own line that called more than half of the time of ``python_calls``.

    ``python_calls`` has the columns id, start_ns and end_ns. None if no line called more than half.
    """
    lines = user_lines(recording, [int(call) for call in python_calls["id"]])
    ns = python_calls["end_ns"] - python_calls["start_ns"]
    of_line = ns.groupby(python_calls["id"].map(lines)).sum()
    return (
        readable_frame(without_stale_lines(recording, [str(of_line.idxmax())])[0])
        if len(of_line) and 2 * of_line.max() > ns.sum()
        else None
    )


def _frames(recording: Recording, device: int, start_ns: int) -> list[tuple[int, str]]:
    """Return ids and names of the Python calls at the event that begins at ``start_ns``, outermost first."""
    frames_at = (
        recording.rows(
            "SELECT python_call_id FROM gaps WHERE device = ? AND start_ns = ? AND python_call_id IS NOT NULL LIMIT 1",
            [device, start_ns],
        )
        or recording.rows(
            "SELECT p.python_call_id FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN python_calls p ON p.thread_id = c.thread_id "
            "AND p.start_ns <= c.start_ns AND p.start_ns + p.dur_ns >= c.start_ns WHERE g.device = ? AND g.start_ns = ? "
            "ORDER BY p.start_ns DESC, p.dur_ns LIMIT 1",
            [device, start_ns],
        )
        or recording.rows(_AT_HOST_EVENT, {"start": start_ns})
        or recording.rows(_BACKWARD, {"device": device, "start": start_ns})
    )
    call = frames_at[0][0] if frames_at else None
    frames: list[tuple[int, str]] = []
    for _ in range(MAX_FRAMES):
        if call is None:
            break
        parent, name = recording.rows("SELECT parent_id, name FROM named_python_calls WHERE python_call_id = ?", [call])[0]
        frames.append((int(call), str(name)))
        call = parent
    return frames[::-1]


def user_lines(recording: Recording, calls: Sequence[int]) -> dict[int, str]:
    """Return, by python_call_id, the innermost frame of the user's own code at or above each call.

    The result has no calls without such a frame.
    """
    line: dict[int, str] = {}
    at = {int(call): int(call) for call in calls}
    for _ in range(MAX_FRAMES):
        if not at:
            break
        frame_ids = sorted(set(at.values()))
        lines = {
            row[0]: row[1:]
            for row in recording.rows(
                "SELECT python_call_id, parent_id, name FROM named_python_calls "
                "WHERE python_call_id IN (SELECT unnest(?::BIGINT[]))",
                [frame_ids],
            )
        }
        following: dict[int, int] = {}
        for call, frame_id in at.items():
            parent, name = lines.get(frame_id, (None, ""))
            if is_user_line(name):
                line[call] = name
            elif parent is not None:
                following[call] = int(parent)
        at = following
    return line
