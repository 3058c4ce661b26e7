"""Steps of a trace without marks: the periods of the work that the host repeats.

A step is the smallest period that explains the loop. It begins with an operation that occurs once per period. Consecutive periods
contain the same operations. Most periods contain everything that the loop does (backward, optimizer, an embedding, a read of
the loss). This excludes a layer or a micro-batch, which also repeat. Only counts of operations are compared, not their order or
shapes, so the loop is found in spite of branches, other threads and varying lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.distinct_rows import distinct_rows

I64 = NDArray[np.int64]

BACKWARD = ("autograd::engine::evaluate_function",)
# Operations that update parameters: fused kernels, and the operations of unfused Adam and SGD with momentum.
OPTIMIZER = ("_fused_adam", "_fused_sgd", "_fused_adagrad", "_foreach_", "addcdiv", "multi_tensor_apply_kernel")
# If the loop has a backward pass and an update, this share of the periods must have both. A step may skip its update.
MARKED_SHARE = 0.75
CONTAINED_FROM = 0.75  # The longer of two neighbouring periods must contain this share of the other's operations.
# The step is the smallest period with at least this share of the best score. A period with its own backward pass and update cannot
# be a layer. For such periods (AS_GOOD_TRAINING), the limit is lower, because work of every few steps (a checkpoint, an
# evaluation) makes periods differ. For other periods (AS_GOOD), the limit must exclude layers.
AS_GOOD_TRAINING = 0.65
AS_GOOD = 0.92
# Most periods of an inference must have this share of all kinds of operations. Layers lack the embedding, the head or the token
# selection.
WHOLE_FROM = 0.8
# A model applies these operators to its input once per pass, before its layers.
OF_INPUT = ("aten::embedding", "aten::conv")
# Largest number of operators between the input and the first layer. BERT and ViT have at most 15; a text encoder before a
# diffusion model has over 100.
MAX_DISTANCE = 60
# Smallest number of GPU operations of a period. Smaller periods are single calls, and the number of calls per step is unknown.
GPU_OPS_FROM = 10
PRESENT_SHARE = 0.75  # An operation belongs to the loop if at least this share of the periods contains it.
# Smallest distance between two beginnings, relative to the median distance. Work that recurs within a step has smaller
# distances.
EVEN_FROM = 0.2
BURST_SHARE = 0.5  # Occurrences form one burst if their distance is below this share of the largest distance.
PER_COUNT = 6  # If several operations have the same count, this many of them are tried as beginnings, earliest first.
TABLE_CELLS = 5_000_000  # Largest table of periods × kinds (40 MB). If there are more periods, they are calls within steps.
COUNTS_TRIED = 48  # Number of counts that are tried, most common first, because many operations occur once per step.


@dataclass(frozen=True)
class Tokens:
    """Top-level host work in time order.

    ``coarse`` identifies operations by name, ``fine`` by name and shapes; both are dense.
    """

    start: I64
    end: I64
    coarse: I64
    fine: I64
    names: list[str]  # Of each coarse token.

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class _Periods:
    first: I64  # Index of the token that begins each period.
    score: float


def find_periods(events: TraceEvents) -> tuple[I64, I64] | None:
    """Return the host intervals (starts, ends) of the loop's periods; None if nothing repeats.

    Times are in ns from the events' origin.
    """
    tokens = top_level(events)
    if len(tokens) < 2:
        return None
    # Single operations are tried first. Bursts are less certain, because the start of the recording may cut a burst in two.
    for in_bursts in (False, True):
        tried = [p for p in (_periods(tokens, at) for at in _beginnings(tokens, in_bursts)) if p is not None]
        if tried:
            break
    else:
        return None
    floor = (AS_GOOD_TRAINING if _trains(tokens) else AS_GOOD) * max(p.score for p in tried)
    good = [p for p in tried if p.score >= floor]
    chosen = min(good, key=lambda p: (-len(p.first), int(p.first[0])))
    if len(events.gpu) < GPU_OPS_FROM * len(chosen.first):
        return None
    first = _from_the_capture_on(tokens, chosen.first)
    if not _trains(tokens) and _follow_one_input(tokens, first):
        return None
    starts = tokens.start[first]
    if first[0] == 0:
        starts[0] = min(int(tokens.start[0]), int(events.calls.start[0]) if len(events.calls) else int(tokens.start[0]))
    last = max(int(tokens.end.max()), int(events.calls.end.max()) if len(events.calls) else 0)
    return starts, np.concatenate((starts[1:], [last])).astype(np.int64)


def top_level(events: TraceEvents) -> Tokens:
    """Return the operators without a caller and the launches without an operator, on threads that launch."""
    ops, calls = events.ops, events.calls
    launches = calls.gpu_ops > 0
    is_top_level = launches & ((calls.cpu_op < 0) | _is_annotation(events, calls.cpu_op))
    chosen_calls = np.flatnonzero(is_top_level)
    parent = ops.parent.copy()
    while (passing := _is_annotation(events, parent)).any():
        parent[passing] = ops.parent[parent[passing]]
    chosen_ops = np.flatnonzero(~ops.annotation & (parent < 0) & np.isin(ops.thread, np.unique(calls.thread[launches])))
    kernel = _first_kernel(events)[chosen_calls]
    start = np.concatenate((ops.start[chosen_ops], calls.start[chosen_calls]))
    order = np.argsort(start, kind="stable")
    name = np.concatenate((ops.name[chosen_ops], kernel)).astype(np.int64)[order]
    shapes = np.concatenate((ops.signature[chosen_ops], calls.name[chosen_calls])).astype(np.int64)[order]
    used, coarse = np.unique(name, return_inverse=True)
    fine = distinct_rows(name, shapes)[1] if len(name) else coarse
    return Tokens(
        start[order],
        np.concatenate((ops.end[chosen_ops], calls.end[chosen_calls]))[order],
        coarse.astype(np.int64),
        fine.reshape(-1).astype(np.int64),
        [events.names[i] for i in used],
    )


def _is_annotation(events: TraceEvents, op: I64) -> NDArray[np.bool_]:
    return (op >= 0) & events.ops.annotation[np.maximum(op, 0)] if len(events.ops) else np.zeros(len(op), bool)


def _first_kernel(events: TraceEvents) -> I64:
    """Return, for each runtime call, the name of the first GPU operation that it launched; -1 for none."""
    kernel = np.full(len(events.calls), -1, np.int64)
    linked = np.flatnonzero(events.gpu.call >= 0)[::-1]  # The order is reversed, so that the first operation is written last.
    kernel[events.gpu.call[linked]] = events.gpu.name[linked]
    return kernel


def _beginnings(tokens: Tokens, in_bursts: bool) -> list[I64]:
    """Return token positions at which periods could begin: operations that recur evenly."""
    by_count: dict[int, list[I64]] = {}
    most_rows = TABLE_CELLS // (int(tokens.fine.max()) + 1)
    for kind in (tokens.coarse, tokens.fine):
        order = np.argsort(kind, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
            places = _bursts(at) if in_bursts else at
            if 2 <= len(places) <= most_rows:
                by_count.setdefault(len(places), []).append(places)
    common = sorted(by_count, key=lambda count: -len(by_count[count]))[:COUNTS_TRIED]
    chosen: list[I64] = []
    for count in common:
        even = [at for at in by_count[count] if np.diff(at).min() >= EVEN_FROM * np.median(np.diff(at))]
        chosen += sorted(even, key=lambda at: int(at[0]))[:PER_COUNT]
    return chosen


def _bursts(at: I64) -> I64:
    """Return the first occurrence of each burst of close occurrences.

    The updates of many parameters after several micro-batches form such a burst.
    """
    distances = np.diff(at)
    return at[np.concatenate(([True], distances > BURST_SHARE * distances.max(initial=0)))]


def _periods(tokens: Tokens, first: I64) -> _Periods | None:
    """Return the periods that begin at ``first``, with their score; None if they are not steps."""
    count = _counts(tokens, first, tokens.coarse)
    for marks in (_codes_with_words(tokens, BACKWARD), _codes_with_words(tokens, OPTIMIZER)):
        if marks and (count[:, marks].sum(axis=1) > 0).mean() < MARKED_SHARE:
            return None
    low, high = np.minimum(count[:-1], count[1:]), np.maximum(count[:-1], count[1:])
    contained = low.sum() / np.minimum(count[:-1].sum(axis=1), count[1:].sum(axis=1)).sum()
    if contained < CONTAINED_FROM or not (low > 0).any():
        return None
    # A period of three steps contains the same kinds of operations three times as often.
    as_often = (low[low > 0] / high[low > 0]).mean()
    if not _trains(tokens) and _present(count, 1) < WHOLE_FROM:
        return None
    return _Periods(first, float(contained * as_often) * _present(count, 2) * _present(_counts(tokens, first, tokens.fine), 2))


def _trains(tokens: Tokens) -> bool:
    return bool(_codes_with_words(tokens, BACKWARD))


def _codes_with_words(tokens: Tokens, words: tuple[str, ...]) -> list[int]:
    return [i for i, name in enumerate(tokens.names) if any(word in name for word in words)]


def _counts(tokens: Tokens, first: I64, kind: I64) -> I64:
    """Return how often each kind occurs in each period.

    Tokens before the first period complete the last one, because a recording may begin anywhere.
    """
    period = np.maximum(np.searchsorted(first, np.arange(len(tokens)), side="right") - 1, 0)
    period[: first[0]] = len(first) - 1
    kinds = int(kind.max()) + 1
    return np.bincount(period * kinds + kind, minlength=len(first) * kinds).reshape(len(first), kinds)


def _present(count: I64, at_least: int) -> float:
    """Return the share of the kinds that most periods contain.

    Only kinds that occur at least ``at_least`` times in the trace count.
    """
    kinds = count.sum(axis=0) >= at_least
    return float(((count[:, kinds] > 0).mean(axis=0) >= PRESENT_SHARE).mean()) if kinds.any() else 0.0


def _follow_one_input(tokens: Tokens, first: I64) -> bool:
    """Return whether the periods are the layers of one pass.

    The input of the pass is read just before them, and most periods read none.
    """
    for word in OF_INPUT:
        at = np.flatnonzero(np.isin(tokens.coarse, _codes_with_words(tokens, (word,))))
        with_input = np.unique(np.searchsorted(first, at, side="right"))
        if len(at) and at[0] >= first[0] - MAX_DISTANCE and len(with_input) < MARKED_SHARE * len(first):
            return True
    return False


def _from_the_capture_on(tokens: Tokens, first: I64) -> I64:
    """Move all beginnings earlier, as long as the same operation precedes each of them.

    A profile that starts between two steps begins with a full step. So the operations before the first beginning belong to its
    step.
    """
    shift = 0
    while shift < first[0] and len(np.unique(tokens.coarse[first - shift - 1])) == 1:
        shift += 1
    return first - shift
