"""The step phase in which time was lost, from names of operators, annotations and Python frames."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import HostFacts, matches_of
from sawtooth.analysis.derive.lost.host_location import HostLocation
from sawtooth.analysis.derive.lost.schedule import CODE, Pieces
from sawtooth.analysis.derive.operators import nearest_marked_operator
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.knowledge.causes import CAUSES
from sawtooth.analysis.knowledge.host_names import DATA_FRAME, DATA_MARK, ENGINE_OP
from sawtooth.analysis.replay.simulation import I64

PHASES = ("input", "forward", "backward", "optimizer", "checkpoint", "other")
OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
# Names that identify a phase. The first pattern is for operators and annotations, the second only for users' annotations.
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
FRAME_PHASES = (
    (
        "checkpoint",
        re.compile(r"torch/serialization\.py\(\d+\): _?save|safetensors.*: save_file|checkpoint.*\.py\(\d+\): .*save"),
    ),
    ("input", DATA_FRAME),
)


def phase_of_ops(events: TraceEvents, view: HostView) -> NDArray[np.int8]:
    """Return the phase (index in PHASES) of every operator and annotation.

    The phase comes from the operator's own name, or else from the name of its nearest ancestor; -1 if no name shows it.
    """
    ops, names = events.ops, events.names
    own_phase = np.full(len(ops), -1, dtype=np.int8)
    for phase, pattern in reversed(USER_PHASES):
        own_phase[matches_of(names, pattern)[ops.name] & ops.annotation] = PHASES.index(phase)
    for phase, pattern in reversed(MARKED_PHASES):
        own_phase[matches_of(names, pattern)[ops.name]] = PHASES.index(phase)
    own_phase = _without_closures(events, own_phase)
    engine_thread = view.lines.engine[ops.thread]
    result = _inherit(own_phase, ops.parent)
    result[(result < 0) & engine_thread] = PHASES.index("backward")
    return result


def _without_closures(events: TraceEvents, own_phase: NDArray[np.int8]) -> NDArray[np.int8]:
    """Remove the optimizer's phase from a closure that runs inside ``Optimizer.step``.

    The closure is everything that begins before its backward pass has ended. If the annotation of such an optimizer contains no
    backward pass, the recording ended before it.
    """
    ops = events.ops
    nodes = np.flatnonzero(matches_of(events.names, ENGINE_OP)[ops.name]) if len(ops) else np.zeros(0, np.int64)
    if not len(nodes):
        return own_phase
    latest = np.maximum.accumulate(ops.end[nodes])
    steps = np.flatnonzero(matches_of(events.names, OPTIMIZER_STEP)[ops.name] & ops.annotation)
    first, last = (np.searchsorted(ops.start[nodes], edge[steps]) for edge in (ops.start, ops.end))
    own_phase[steps[np.isin(ops.name[steps], ops.name[steps[last > first]])]] = -1
    for step, passed in zip(steps[last > first], latest[last[last > first] - 1], strict=True):
        later_ops = np.arange(*np.searchsorted(ops.start, (passed, ops.end[step])))
        own_phase[later_ops[(ops.parent[later_ops] == step) & (own_phase[later_ops] < 0)]] = PHASES.index("optimizer")
    return own_phase


def _inherit(own_phase: NDArray[np.int8], parent: I64) -> NDArray[np.int8]:
    """Return each entry's value, or the value of its nearest ancestor if the entry has none (-1)."""
    ancestor = nearest_marked_operator(own_phase >= 0, parent, np.arange(len(own_phase)))
    return np.where(ancestor >= 0, own_phase[ancestor], own_phase) if len(own_phase) else own_phase.copy()


def phase_of_pieces(
    events: TraceEvents, facts: HostFacts, view: HostView, pieces: Pieces, place: HostLocation
) -> NDArray[np.int8]:
    """Return the phase of each piece.

    The phase comes from the first of these that has one: the cause, the Python frame, the operator, the operator around the
    piece, the launching operator.
    """
    of_op = phase_of_ops(events, view)

    def phase_at(index: I64) -> NDArray[np.int8]:
        return np.where(index >= 0, of_op[index], -1).astype(np.int8) if len(of_op) else np.full(len(index), -1, np.int8)

    trains = (of_op == PHASES.index("backward")).any()
    phase = np.full(len(pieces), PHASES.index("forward" if trains else "other"), dtype=np.int8)
    for candidate in (phase_at(place.launch_op), phase_at(place.enclosing_op), phase_at(place.op)):
        phase = np.where(candidate >= 0, candidate, phase)
    if len(facts.python_start):
        own_phase = np.full(len(facts.python_start), -1, dtype=np.int8)
        for name, pattern in FRAME_PHASES:
            own_phase[matches_of(events.names, pattern)[facts.python_name]] = PHASES.index(name)
        of_frame = _inherit(own_phase, facts.python_parent)
        in_frame = np.where(place.frame >= 0, of_frame[place.frame], -1)
        phase = np.where(in_frame >= 0, in_frame, phase)
    for cause in CAUSES:
        if cause.phase is not None:
            phase = np.where(pieces.cause == CODE[cause.key], PHASES.index(cause.phase), phase).astype(np.int8)
    return phase
