"""What several rules ask of a recording: calls, copies and operators of the counted steps of the lead device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.rule import RuleContext, once
from sawtooth.analysis.findings.within import calls_within, launches_within, reach
from sawtooth.analysis.findings.work import AUTOGRAD_NODE
from sawtooth.analysis.telemetry.phases import ThrottleBand
from sawtooth.analysis.telemetry.profile_fit import SHORT_KERNEL_NS
from sawtooth.ingest.quantities.throttling import ReasonKind

EVIDENCE_ROWS = 5  # the largest few prove it; more only lengthen the page


@dataclass(frozen=True)
class Events:
    """Events of the counted steps: a frame with id, name, start_ns, end_ns, step (and further columns), and how many steps there are."""

    frame: pd.DataFrame
    steps: int

    @property
    def count(self) -> float:
        """Events per step."""
        return len(self.frame) / max(self.steps, 1)

    @property
    def ms(self) -> float:
        """Sum of durations per step, ms."""
        return float((self.frame["end_ns"] - self.frame["start_ns"]).sum()) / 1e6 / max(self.steps, 1)

    @property
    def ids(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(int(i) for i in self.frame["id"])

    def rows(self, limit: int = EVIDENCE_ROWS) -> list[dict[str, Any]]:
        """Return the longest as evidence rows that link to the timeline."""
        longest = self.frame.assign(ms=(self.frame["end_ns"] - self.frame["start_ns"]) / 1e6).nlargest(limit, "ms")
        return [
            {"name": str(r["name"]), "start_ns": int(r["start_ns"]), "end_ns": int(r["end_ns"]), "ms": float(r["ms"])}
            for r in longest.to_dict("records")
        ]

    def where(self, mask: Any) -> Events:
        """Return those that ``mask`` selects."""
        return Events(self.frame[mask].reset_index(drop=True), self.steps)


def calls(context: RuleContext, pattern: str) -> Events:
    """Return the runtime calls of the counted steps whose name matches the regular expression, with cpu_op_id and thread_id."""
    return _begun(context, "runtime_calls", "call_id", pattern, "cpu_op_id", "thread_id")


def operators(context: RuleContext, pattern: str) -> Events:
    """Return the operators and annotations of the counted steps whose name matches the regular expression, with thread_id."""
    return _begun(context, "cpu_ops", "cpu_op_id", pattern, "thread_id")


def frames(context: RuleContext, pattern: str) -> Events:
    """Return the Python calls of the counted steps whose name matches the regular expression."""
    return _begun(context, "python_calls", "python_call_id", pattern)


@once
def _begun(context: RuleContext, table: str, key: str, pattern: str, *more: str) -> Events:
    """Return the rows of a table of host events that began in a counted step, with the columns ``more``."""
    names = context.recording.named(pattern)
    if not names:
        return Events(_none(*more), len(context.rank.counted))
    frame = context.recording.frame(
        f"SELECT {', '.join((f'e.{key} AS id, e.name, e.start_ns, e.start_ns + e.dur_ns AS end_ns, t.step', *more))} FROM named_{table} e "
        "JOIN steps t ON t.device = ? AND t.counted AND e.start_ns >= t.host_start_ns AND e.start_ns < t.host_end_ns "
        f"WHERE e.name_id IN (SELECT unnest(?::INTEGER[])) ORDER BY e.{key}",
        [context.rank.device, names],
    )
    return Events(frame, len(context.rank.counted))


@cache
def _none(*more: str) -> pd.DataFrame:
    columns = {"id": np.int64, "name": "str", "start_ns": np.int64, "end_ns": np.int64, "step": np.int32}
    return pd.DataFrame([], columns=[*columns, *more]).astype(columns | dict.fromkeys(more, np.int64))


@once
def copies(context: RuleContext, pattern: str) -> Events:
    """Return the copies launched in counted steps whose name matches, with bytes and call_id."""
    names = context.recording.named(pattern)
    if not names:
        return Events(_none("bytes", "call_id"), len(context.rank.counted))
    frame = context.recording.frame(
        "SELECT gpu_op_id AS id, name, start_ns, start_ns + dur_ns AS end_ns, step, bytes, call_id FROM step_gpu_ops "
        "WHERE device = ? AND counted AND kind = 'memcpy' AND name_id IN (SELECT unnest(?::INTEGER[])) ORDER BY gpu_op_id",
        [context.rank.device, names],
    )
    return Events(frame, len(context.rank.counted))


def calls_of(context: RuleContext, ops: Sequence[int]) -> tuple[int, ...]:
    """Return the calls that launched these GPU operations."""
    rows = context.recording.rows(
        "SELECT DISTINCT call_id FROM gpu_ops WHERE gpu_op_id IN (SELECT unnest(?::BIGINT[])) AND call_id IS NOT NULL ORDER BY 1",
        [list(ops)],
    )
    return tuple(int(row[0]) for row in rows)


def waits_beside(context: RuleContext, calls: Sequence[int]) -> tuple[int, ...]:
    """Return the synchronizing calls that the operators which made these ``calls`` made too: what makes a copy a blocking one."""
    rows = context.recording.rows(
        "SELECT w.call_id FROM named_runtime_calls w WHERE regexp_matches(w.name, 'Synchronize') AND w.cpu_op_id IN "
        "(SELECT cpu_op_id FROM runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])) AND cpu_op_id IS NOT NULL) ORDER BY 1",
        [list(calls)],
    )
    return tuple(int(row[0]) for row in rows)


def lost_in_calls(context: RuleContext, cause: str, ids: tuple[int, ...]) -> float:
    """Return the ms per step lost to ``cause`` that these calls own: their share as recorded of what the run's column says."""
    if not ids:
        return 0.0
    rows = context.recording.rows(
        "SELECT coalesce(sum(end_ns - start_ns) FILTER (call_id IN (SELECT unnest(?::BIGINT[]))), 0), coalesce(sum(end_ns - start_ns), 0) "
        "FROM gaps WHERE device = ? AND cause = ?",
        [list(ids), context.rank.device, cause],
    )
    ours, whole = rows[0]
    return context.lost_ms(cause) * float(ours) / float(whole) if whole else 0.0


@once
def waiting_calls(context: RuleContext, inside: str) -> tuple[int, ...]:
    """Return the synchronizing calls of all steps that are inside an operator whose name matches, at any depth."""
    names = context.recording.named(inside)
    if not names:
        return ()
    rows = context.recording.rows(
        "WITH RECURSIVE up AS (SELECT call_id, cpu_op_id FROM named_runtime_calls "
        "WHERE regexp_matches(name, 'Synchronize|Memcpy') AND cpu_op_id IS NOT NULL "
        "UNION ALL SELECT up.call_id, o.parent_id FROM up JOIN cpu_ops o USING (cpu_op_id) WHERE o.parent_id IS NOT NULL) "
        "SELECT DISTINCT call_id FROM up JOIN named_cpu_ops o USING (cpu_op_id) "
        "WHERE o.kind = 'op' AND o.name_id IN (SELECT unnest(?::INTEGER[])) ORDER BY 1",
        [names],
    )
    return tuple(int(row[0]) for row in rows)


READS = r"^aten::(item|is_nonzero|_local_scalar_dense|to|_to_copy|copy_)$"  # tolist(), cpu() and numpy() are the last three
SUMMARIES = (  # what sums a tensor up for the host to read or to test; a loss is none of them, so that training needs no result of these
    r"^aten::(norm|linalg_vector_norm|isnan|isinf|isfinite|any|all|max|min|amax|amin|argmax|argmin|eq|ne|lt|le|gt|ge|logical_\w+|detach|view|reshape|select|resolve_\w+)$"
)
# What no backward pass needs: counts of what is true, and figures made of a single number, out of place, as a perplexity of a loss.
_FIGURES = f"""regexp_matches(o.name, '^aten::(sum|mean|count_nonzero)$') AND regexp_matches(s.input_types, '^\\["(bool|int|long int)"')
    OR NOT ends_with(o.name, '_') AND NOT regexp_matches(s.input_dims, '[0-9]') AND regexp_matches(s.input_types, '"(float|double|c10::)')
    AND NOT exists (FROM named_cpu_ops n WHERE n.sequence_number = o.sequence_number AND starts_with(n.name, '{AUTOGRAD_NODE}'))"""
_ONLY_READ = f"""
WITH outermost AS (SELECT o.cpu_op_id, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns, regexp_matches(o.name, $1) AS reads,
        NOT reads AND (regexp_matches(o.name, $2) OR coalesce({_FIGURES}, false)) AS sums_up
    FROM named_cpu_ops o LEFT JOIN signatures s USING (signature_id)
    WHERE o.kind = 'op' AND (o.parent_id IS NULL OR o.parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation'))),
grouped AS (SELECT *, count(CASE WHEN NOT sums_up THEN 1 END) OVER (PARTITION BY thread_id ORDER BY start_ns, cpu_op_id) AS place FROM outermost),
waiting AS (SELECT DISTINCT g.thread_id, g.place FROM runtime_calls c ASOF JOIN (SELECT * FROM grouped WHERE reads) g
    ON c.thread_id = g.thread_id AND c.start_ns >= g.start_ns WHERE c.start_ns < g.end_ns AND c.call_id IN (SELECT unnest($3::BIGINT[]))),
serving AS (SELECT g.* FROM grouped g JOIN waiting w ON w.thread_id = g.thread_id AND (g.sums_up AND g.place = w.place - 1 OR g.reads AND g.place = w.place))
SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within("serving")}) USING (call_id) ORDER BY 1"""


def only_read(context: RuleContext, waits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the GPU operations of all steps that only serve reads which wait in ``waits``: the copy to the host, and the norms, tests
    and figures of a single number directly before it whose result it takes."""
    return tuple(int(row[0]) for row in context.recording.rows(_ONLY_READ, [READS, SUMMARIES, list(waits)]))


@dataclass(frozen=True)
class NanChecks:
    """What autograd's anomaly detection adds in all steps: runtime calls, the waits for its answers among them, and GPU operations."""

    calls: tuple[int, ...]
    operations: frozenset[int]


# Anomaly detection is what calls _is_any_true right below a node of autograd: tests of the user's own say any, or stand elsewhere.
_NAN_CHECKS = f"""
WITH below AS (SELECT o.parent_id, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns, o.name FROM named_cpu_ops o
    JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    WHERE starts_with(p.name, $1) AND o.name IN ('aten::isnan', 'aten::_is_any_true', 'aten::item')),
tests AS (SELECT * FROM below WHERE parent_id IN (SELECT parent_id FROM below WHERE name = 'aten::_is_any_true')),
made AS ({calls_within("tests")})
SELECT call_id, gpu_op_id FROM made LEFT JOIN gpu_ops USING (call_id)"""


@once
def nan_checks(context: RuleContext) -> NanChecks:
    """Return what anomaly detection adds; nothing where it is off."""
    if not context.recording.named("^aten::_is_any_true$"):
        return NanChecks((), frozenset())
    rows = context.recording.rows(_NAN_CHECKS, [AUTOGRAD_NODE])
    return NanChecks(tuple(sorted({int(call) for call, _ in rows})), frozenset(int(op) for _, op in rows if op is not None))


CONVOLUTION = r"^aten::(cudnn_convolution|convolution_backward)"
SEARCHES = 12  # kernels of one convolution: it needs one to five, both gradients and layout conversions included; a search tries twenty and more
_SEARCHING = (
    "SELECT o.cpu_op_id FROM named_cpu_ops o JOIN gpu_ops g USING (cpu_op_id) "
    "WHERE regexp_matches(o.name, ?) AND g.kind = 'kernel' GROUP BY 1 HAVING count(*) >= ?"
)


@once
def searching_convolutions(context: RuleContext) -> Events:
    """Return the convolutions of the counted steps in which cuDNN tries algorithms."""
    if not context.recording.named(CONVOLUTION):
        return operators(context, CONVOLUTION)
    ids = [int(row[0]) for row in context.recording.rows(_SEARCHING, [CONVOLUTION, SEARCHES])]
    convolutions = operators(context, CONVOLUTION)
    return convolutions.where(convolutions.frame["id"].isin(ids))


def calls_of_searches(context: RuleContext) -> set[int]:
    """Return the calls made inside convolutions in which cuDNN tries algorithms, in any step."""
    if not context.recording.named(CONVOLUTION):
        return set()
    rows = context.recording.rows(
        f"SELECT call_id FROM runtime_calls WHERE cpu_op_id IN ({_SEARCHING})", [CONVOLUTION, SEARCHES]
    )
    return {int(row[0]) for row in rows}


def held_down(context: RuleContext, *kinds: ReasonKind) -> tuple[list[ThrottleBand], float]:
    """Return the bands in which clocks were held down for a reason of one of ``kinds``, and their share of the sampled time."""
    telemetry = context.telemetry
    bands = [band for band in telemetry.throttling if band.kind in kinds]
    held = sum(band.end_ns - band.start_ns for band in bands)
    return bands, min(held / max(telemetry.last_ns - telemetry.first_ns, 1), 1.0)


def band_evidence(bands: list[ThrottleBand]) -> list[dict[str, Any]]:
    """Return the first bands as evidence rows."""
    return [{"reason": band.reason, "start_ns": band.start_ns, "end_ns": band.end_ns} for band in bands[:EVIDENCE_ROWS]]


@once
def memory_use(context: RuleContext) -> tuple[float, float] | None:
    """Return peak memory in use and memory of the GPU, bytes: by telemetry, else by the allocator; None where neither tells."""
    telemetry = context.telemetry
    if telemetry is not None and telemetry.memory_peak_bytes and telemetry.memory_total_bytes:
        return float(telemetry.memory_peak_bytes), float(telemetry.memory_total_bytes)
    rows = context.recording.rows(
        "SELECT max(total_reserved_bytes) FROM allocations WHERE device_type <> 0 AND device = ?", [context.rank.device]
    )
    total = context.recording.rows("SELECT max(memory_bytes) FROM devices WHERE device = ?", [context.rank.device])
    return (float(rows[0][0]), float(total[0][0])) if rows[0][0] and total[0][0] else None


def in_bytes(count: float) -> str:
    """Return bytes for a title."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


MASK_OPERATORS = r"^aten::(nonzero|masked_select|_unique|unique_dim|unique_consecutive|argwhere|index_put_|repeat_interleave)"
PINNED_BYTES_PER_NS = 55.0  # PCIe 5 ×16 as measured on an H200: 55.5 GB/s pinned against 10 to 23 GB/s pageable
CHECKPOINT_COPIES = 16  # tensors copied out in one step; reading losses and norms moves single numbers
CHECKPOINT_BYTES = 1_000_000  # in one step: less is no model
MAKERS = r"^aten::(triu|tril|ones|zeros|full|arange|eye|linspace|rand|randn|randint|randperm|normal_|uniform_|bernoulli_|fill_|masked_fill_?|tril_|triu_|one_hot)$"


@once
def checkpoint_copies(context: RuleContext) -> Events:
    """Return the copies to the host of those steps that copy out as many tensors as a checkpoint does."""
    to_host = copies(context, "(?i)DtoH|DeviceToHost")
    frame = to_host.frame[to_host.frame["call_id"].notna()]
    totals = frame.groupby("step")["bytes"].agg(["count", "sum"])
    steps = totals[(totals["count"] >= CHECKPOINT_COPIES) & (totals["sum"] >= CHECKPOINT_BYTES)].index
    return Events(frame[frame["step"].isin(steps)].reset_index(drop=True), to_host.steps)


@once
def copies_of_made_tensors(context: RuleContext) -> Events:
    """Return the pageable copies that follow, since the thread's previous launch, an operator that makes a tensor (column ``maker``).

    Operators inside the data loader's own annotation are left out: that is loading.
    """
    pageable = copies(context, "(?i)pageable *-> *device|HtoD.*pageable")
    calls = [int(c) for c in pageable.frame["call_id"].dropna()]
    if not calls:  # to find none in five million events takes seconds
        return Events(pageable.frame.assign(maker=""), pageable.steps)
    loading = "(SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM cpu_ops JOIN names USING (name_id) WHERE regexp_matches(name, 'DataLoader'))"
    makers = context.recording.frame(
        "WITH launching AS (SELECT call_id, thread_id, start_ns, start_ns + dur_ns AS end_ns, "
        "lag(start_ns + dur_ns) OVER (PARTITION BY thread_id ORDER BY start_ns) AS since FROM runtime_calls WHERE gpu_ops > 0), "
        "made AS (SELECT o.* FROM (SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns, dur_ns, name FROM cpu_ops JOIN names USING (name_id) "
        f"WHERE regexp_matches(name, $2)) o ASOF LEFT JOIN ({reach(loading)}) d ON d.thread_id = o.thread_id AND o.start_ns >= d.start_ns "
        "WHERE d.end_ns IS NULL OR o.start_ns >= d.end_ns) "
        "SELECT l.call_id, arg_max(o.name, o.dur_ns) AS maker FROM made o ASOF JOIN launching l ON l.thread_id = o.thread_id AND o.end_ns <= l.start_ns "
        "WHERE o.start_ns >= l.since AND l.call_id IN (SELECT unnest($1::BIGINT[])) GROUP BY l.call_id",
        [calls, MAKERS],
    )
    frame = pageable.frame.merge(makers, on="call_id", how="inner") if len(makers) else pageable.frame.iloc[:0].assign(maker="")
    return Events(frame, pageable.steps)


def idle_by_telemetry_ms(context: RuleContext) -> float | None:
    """Return the ms of a step in which telemetry's steady part sees no kernel, None where it cannot tell (none, or kernels too short)."""
    busy, step = context.rank.metrics["nvml_gpu_util_mean"].value, context.step_ms
    if busy is None or not step or not context.rank.facts.get("kernels_in_counted_steps"):
        return None
    kernels = context.rank.facts["kernels_in_counted_steps"] / max(len(context.rank.counted), 1)
    return (1 - busy) * step if busy * step * 1e6 >= SHORT_KERNEL_NS * kernels else None
