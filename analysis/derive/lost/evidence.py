"""What proves the cause of lost time, and where in the step it happened: phase, operator, call, Python frame, one plain sentence."""

from __future__ import annotations

import re
from functools import cache
from string import Formatter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import named
from sawtooth.analysis.derive.events import Events
from sawtooth.analysis.derive.host import ENGINE_OP, HostFacts, matching
from sawtooth.analysis.derive.lost.schedule import CODE, Lost, Pieces, Schedule
from sawtooth.analysis.derive.operators import nearest
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS, CAUSE_OF, CAUSES, DATA_FRAME, DATA_MARK
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.machine import I64, NEVER

PHASES = ("input", "forward", "backward", "optimizer", "checkpoint", "other")
CONFIDENCES = ("high", "medium", "low")
MAX_SENTENCES = 20_000  # the longest pieces get a sentence; beyond them nobody reads, and a million sentences cost seconds
DURATIONS = ("took", "lead", "waited")  # fields of sentences that are nanoseconds
NAME_LENGTH = 80  # kernel names of templates run to kilobytes
OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
# Names that a phase goes by. The first group holds for any operator or annotation, the second for what users mark themselves.
MARKED_PHASES = (
    ("optimizer", re.compile(r"^Optimizer\.(step|zero_grad)#")),
    ("input", DATA_MARK),
    ("backward", ENGINE_OP),
    ("forward", re.compile(r"^DistributedDataParallel\.forward|^FSDP::.*forward", re.IGNORECASE)),
)
USER_PHASES = (
    (
        "checkpoint",
        re.compile(r"^(?!.*(recompute|activation|CheckpointFunction)).*\b(save|saving|checkpoint(ing)?|ckpt)\b", re.IGNORECASE),
    ),
    ("optimizer", re.compile(r"\b(optimi[sz]er|optim|opt)([_ .](step|update))?\b", re.IGNORECASE)),
    ("backward", re.compile(r"\b(backward|bwd)\b", re.IGNORECASE)),
    ("forward", re.compile(r"\b(forward|fwd)\b", re.IGNORECASE)),
    ("input", re.compile(r"\b(data|input|batch|dataloader|loader|fetch|h2d|host.to.device)\b", re.IGNORECASE)),
)
SYSTEM_CALL = re.compile(r" \(operating system\)$")  # filed with the Python calls, and no frame
FRAME_PHASES = (
    (
        "checkpoint",
        re.compile(r"torch/serialization\.py\(\d+\): _?save|safetensors.*: save_file|checkpoint.*\.py\(\d+\): .*save"),
    ),
    ("input", DATA_FRAME),
)


def phase_of_ops(events: Events, view: HostView) -> NDArray[np.int8]:
    """Return the phase (index in PHASES) of every operator and annotation: its own name's, else its parent's; -1 where nothing says."""
    ops, names = events.ops, events.names
    own = np.full(len(ops), -1, dtype=np.int8)
    for phase, pattern in reversed(USER_PHASES):
        own[matching(names, pattern)[ops.name] & ops.annotation] = PHASES.index(phase)
    for phase, pattern in reversed(MARKED_PHASES):
        own[matching(names, pattern)[ops.name]] = PHASES.index(phase)
    own = _without_closures(events, own)
    engine_thread = view.lines.engine[ops.thread]
    result = _inherited(own, ops.parent)
    result[(result < 0) & engine_thread] = PHASES.index("backward")
    return result


def _without_closures(events: Events, own: NDArray[np.int8]) -> NDArray[np.int8]:
    """Take the optimizer's phase off what a closure runs inside ``Optimizer.step``: all that begins before its backward pass has ended.

    An annotation of such an optimizer without a backward pass was cut off before it.
    """
    ops = events.ops
    nodes = np.flatnonzero(matching(events.names, ENGINE_OP)[ops.name]) if len(ops) else np.zeros(0, np.int64)
    if not len(nodes):
        return own
    latest = np.maximum.accumulate(ops.end[nodes])
    steps = np.flatnonzero(matching(events.names, OPTIMIZER_STEP)[ops.name] & ops.annotation)
    first, last = (np.searchsorted(ops.start[nodes], edge[steps]) for edge in (ops.start, ops.end))
    own[steps[np.isin(ops.name[steps], ops.name[steps[last > first]])]] = -1
    for step, passed in zip(steps[last > first], latest[last[last > first] - 1], strict=True):
        rest = np.arange(*np.searchsorted(ops.start, (passed, ops.end[step])))
        own[rest[(ops.parent[rest] == step) & (own[rest] < 0)]] = PHASES.index("optimizer")
    return own


def _inherited(own: NDArray[np.int8], parent: I64) -> NDArray[np.int8]:
    """Return each entry's value, or its nearest ancestor's where it has none (-1)."""
    known = nearest(own >= 0, parent, np.arange(len(own)))
    return np.where(known >= 0, own[known], own) if len(own) else own.copy()


def innermost(thread: NDArray[np.int32], start: I64, end: I64, parent: I64, at_thread: NDArray[np.int32], at: I64) -> I64:
    """Return the id of the innermost interval of a thread that holds each moment, -1 where there is none. Ids are in order of start."""
    event = np.full(len(at), -1, dtype=np.int64)
    for number in np.unique(at_thread).tolist():
        rows = np.flatnonzero(at_thread == number)
        mine = np.flatnonzero(thread == number)
        if not len(mine):
            continue
        place = np.searchsorted(start[mine], at[rows], side="right") - 1
        hit = np.where(place >= 0, mine[np.maximum(place, 0)], -1)
        late = np.flatnonzero((hit >= 0) & (end[hit] <= at[rows]))
        while len(late):
            hit[late] = parent[hit[late]]
            late = late[(hit[late] >= 0) & (end[hit[late]] <= at[rows][late])]
        event[rows] = hit
    return event


def describe(
    *,
    events: Events,
    facts: HostFacts,
    view: HostView,
    schedule: Schedule,
    lost: Lost,
    pieces: Pieces,
    step_starts: I64,
    step_ends: I64,
) -> pd.DataFrame:
    """Return the rows of the derived table ``gaps`` but for the device; times relative to the origin.

    Columns: gap, start, end, owner, cause, phase, confidence, step (row of the steps given, -1 outside), next_gpu_op_id, cpu_op_id, call_id,
    python_call_id (each -1 where there is none) and evidence (None for pieces too short to be among the MAX_SENTENCES longest).
    """
    calls, gpu = events.calls, events.gpu
    launch = gpu.call[pieces.next_op] if len(gpu) else np.full(len(pieces), -1)
    launch = np.where(pieces.next_op >= 0, launch, -1)
    main = _main_thread(events, view)
    thread = (
        np.where(launch >= 0, calls.thread[launch], main).astype(np.int32)
        if len(calls)
        else np.full(len(pieces), main, np.int32)
    )
    moment = pieces.host_at + (pieces.end - pieces.start) // 2  # the middle speaks for the piece
    op, call, mark = _doing(events, thread, moment)
    elsewhere = (op < 0) & (call < 0) & (thread != main)
    if elsewhere.any():
        op[elsewhere], call[elsewhere], mark[elsewhere] = _doing(
            events, np.full(int(elsewhere.sum()), main, np.int32), moment[elsewhere]
        )
        thread = np.where(elsewhere & ((op >= 0) | (call >= 0)), main, thread).astype(np.int32)
    fetching = (op < 0) & (call < 0) & (pieces.cause == CODE["data_wait"]) & _fetches(events, mark)
    queued = (pieces.cause == CODE["launch_latency"]) | (pieces.cause == CODE["comm_wait"])
    launch_op = np.where(launch >= 0, calls.cpu_op[launch], -1) if len(calls) else np.full(len(pieces), -1)
    call = np.where(pieces.wait_call >= 0, pieces.wait_call, np.where(queued | ((call < 0) & ~fetching), launch, call))
    op = np.where(pieces.wait_call >= 0, calls.cpu_op[pieces.wait_call], np.where(queued, launch_op, op)) if len(calls) else op
    op = np.where(fetching, mark, op)  # the loader's own mark, not what is launched with the batch afterwards
    frame = innermost(
        thread=facts.python_thread,
        start=facts.python_start,
        end=facts.python_end,
        parent=facts.python_parent,
        at_thread=thread,
        at=moment,
    )
    phase = _phases(events=events, facts=facts, view=view, pieces=pieces, op=op, launch_op=launch_op, frame=frame)
    at = np.searchsorted(step_starts, pieces.start, side="right") - 1
    step = (
        np.where((at >= 0) & (pieces.start < step_ends[np.maximum(at, 0)]), at, -1)
        if len(step_starts)
        else np.full(len(pieces), -1)
    )
    table = pd.DataFrame(
        {
            "gap": pieces.gap, "start": pieces.start, "end": pieces.end, "owner": named(lost.owner[pieces.gap], OWNER_KEYS),
            "cause": named(pieces.cause, CAUSE_KEYS), "phase": named(phase, PHASES),
            "confidence": _confidence(events, facts, schedule, pieces), "step": step, "next_gpu_op_id": pieces.next_op,
            "cpu_op_id": op, "call_id": call, "python_call_id": frame,
        }
    )  # fmt: skip
    return table.assign(evidence=_sentences(events, facts, schedule, table))


def _main_thread(events: Events, view: HostView) -> int:
    line = np.flatnonzero((view.lines.of_thread == 0) & ~view.lines.engine)
    if not len(line):
        return int(events.calls.thread[0]) if len(events.calls) else 0
    return int(line[np.argmax(np.bincount(events.ops.thread, minlength=len(view.lines.of_thread))[line])])


def _doing(events: Events, thread: NDArray[np.int32], moment: I64) -> tuple[I64, I64, I64]:
    """Return the operator, the runtime call and the innermost annotation each thread was in, -1 for none; the last only where in no operator."""
    ops, calls = events.ops, events.calls
    op = innermost(thread=ops.thread, start=ops.start, end=ops.end, parent=ops.parent, at_thread=thread, at=moment)
    marks = (op >= 0) & (ops.annotation[op] if len(ops) else False)
    mark = np.where(marks, op, -1)
    op[marks] = -1  # an annotation around operators says where, not what
    none = np.full(len(calls), -1, dtype=np.int64)
    return (
        op,
        innermost(thread=calls.thread, start=calls.start, end=calls.end, parent=none, at_thread=thread, at=moment),
        mark,
    )


def _fetches(events: Events, mark: I64) -> NDArray[np.bool_]:
    """Return whether each annotation is one in which batches are asked for."""
    if not len(events.ops):
        return np.zeros(len(mark), bool)
    return (mark >= 0) & matching(events.names, DATA_MARK)[events.ops.name[mark]]


def _phases(
    *, events: Events, facts: HostFacts, view: HostView, pieces: Pieces, op: I64, launch_op: I64, frame: I64
) -> NDArray[np.int8]:
    of_op = phase_of_ops(events, view)
    thread_main = np.full(len(pieces), _main_thread(events, view), dtype=np.int32)
    around = innermost(
        thread=events.ops.thread,
        start=events.ops.start,
        end=events.ops.end,
        parent=events.ops.parent,
        at_thread=thread_main,
        at=pieces.host_at + (pieces.end - pieces.start) // 2,
    )

    def of(index: I64) -> NDArray[np.int8]:
        return np.where(index >= 0, of_op[index], -1).astype(np.int8) if len(of_op) else np.full(len(index), -1, np.int8)

    trains = (of_op == PHASES.index("backward")).any()
    phase = np.full(len(pieces), PHASES.index("forward" if trains else "other"), dtype=np.int8)
    for candidate in (of(launch_op), of(around), of(op)):
        phase = np.where(candidate >= 0, candidate, phase)
    if len(facts.python_start):
        own = np.full(len(facts.python_start), -1, dtype=np.int8)
        for name, pattern in FRAME_PHASES:
            own[matching(events.names, pattern)[facts.python_name]] = PHASES.index(name)
        of_frame = _inherited(own, facts.python_parent)
        in_frame = np.where(frame >= 0, of_frame[frame], -1)
        phase = np.where(in_frame >= 0, in_frame, phase)
    for cause in CAUSES:
        if cause.phase is not None:
            phase = np.where(pieces.cause == CODE[cause.key], PHASES.index(cause.phase), phase).astype(np.int8)
    return phase


def _confidence(events: Events, facts: HostFacts, schedule: Schedule, pieces: Pieces) -> pd.Categorical:
    """Return high where events of the host or the queue prove the cause, medium where it is inferred, low where it is a remainder."""
    cause = pieces.cause
    linked = (
        (pieces.next_op >= 0) & (schedule.submitted[pieces.next_op] > NEVER)
        if len(schedule.submitted)
        else np.zeros(len(pieces), bool)
    )
    high, medium = CONFIDENCES.index("high"), CONFIDENCES.index("medium")
    level = np.where(linked, high, medium).astype(np.int8)
    if matching(events.names, SYSTEM_CALL)[facts.python_name].all():
        level[cause == CODE["python_host"]] = medium  # no frames were recorded: it is what is left
    carried = pieces.wait_call >= 0
    far = (
        carried
        & (np.where(carried, pieces.start - events.calls.end[pieces.wait_call], 0) > 10 * (pieces.end - pieces.start).clip(1))
        if len(events.calls)
        else carried
    )
    level[far] = medium  # the wait ended long before: its lead was used up only here
    for row in CAUSES:
        if row.confidence != "high":
            level[cause == CODE[row.key]] = CONFIDENCES.index(row.confidence)
    return named(level, CONFIDENCES)


def _duration(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms" if ns >= 1e6 else f"{ns / 1e3:.3g} µs"


def _fillable(template: str) -> tuple[str, list[str]]:
    """Return ``template`` with a ``%s`` for each of its fields, and these."""
    parts = list(Formatter().parse(template))
    text = "".join(words.replace("%", "%%") + ("%s" if key else "") for words, key, _, _ in parts)
    return (text if any(key for _, key, _, _ in parts) else template), [key for _, key, _, _ in parts if key]


def _sentences(events: Events, facts: HostFacts, schedule: Schedule, table: pd.DataFrame) -> pd.Categorical:
    """Return what proves each piece, in words, for the longest MAX_SENTENCES; None for the others."""
    names, ops, calls, gpu = events.names, events.ops, events.calls, events.gpu
    length = (table["end"] - table["start"]).to_numpy()
    rows = np.sort(np.argsort(-length, kind="stable")[:MAX_SENTENCES])
    table = table.iloc[rows]
    next_op, op, call, frame = (
        table[c].to_numpy(np.int64) for c in ("next_gpu_op_id", "cpu_op_id", "call_id", "python_call_id")
    )

    @cache
    def short(name_id: int) -> str:
        text = names[name_id]
        return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"

    def texts(name_ids: NDArray[np.int32], index: I64, missing: str) -> list[str]:
        ids = np.where(index >= 0, name_ids[index], -1).tolist() if len(name_ids) else [-1] * len(index)
        return [short(i) if i >= 0 else missing for i in ids]

    submitted = schedule.submitted[next_op] if len(schedule.submitted) else np.zeros(len(rows), np.int64)
    lead = np.where(next_op >= 0, table["start"].to_numpy() - submitted, 0).clip(0)
    waited = dict(zip(schedule.waits.call.tolist(), (schedule.waits.reached - schedule.waits.start).tolist(), strict=True))
    called = texts(calls.name, call, "a call")
    columns = {
        "kernel": texts(gpu.name, next_op, "the end of the window"),
        "call": called,
        "doing": [doing or own for doing, own in zip(texts(ops.name, op, ""), called, strict=True)],
        "where": [f" at {place}" if place else "" for place in texts(facts.python_name, frame, "")],
        "took": length[rows].tolist(),
        "lead": lead.tolist(),
        "waited": [waited.get(c, 0) for c in call.tolist()],
    }

    numbers: dict[str, int] = {}  # of the sentences
    of_piece = np.full(len(length), -1, np.int32)
    owners, causes = (table[column].cat.codes.to_numpy(np.int64) for column in ("owner", "cause"))
    pairs = owners * len(CAUSE_KEYS) + causes
    for pair in np.unique(pairs).tolist():  # by template: to fill in one with all its columns takes a tenth of the time
        owner, cause = divmod(pair, len(CAUSE_KEYS))
        template, keys = _fillable(CAUSE_OF[CAUSE_KEYS[cause]].evidence[OWNER_KEYS[owner]])
        pieces = np.flatnonzero(pairs == pair)
        values = ([columns[key][piece] for piece in pieces.tolist()] for key in keys)
        texts_of_keys = [
            map(_duration, of_key) if key in DURATIONS else of_key for key, of_key in zip(keys, values, strict=True)
        ]
        sentences = [template % row for row in zip(*texts_of_keys, strict=True)] if keys else [template] * len(pieces)
        of_piece[rows[pieces]] = [numbers.setdefault(sentence, len(numbers)) for sentence in sentences]
    return named(of_piece, list(numbers))
