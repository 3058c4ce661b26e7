"""Runtime calls, operators and Python calls of the counted steps, and the time lost in calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer, launched_inside

RECURRENT_CELLS = r"^aten::(lstm|gru|rnn_tanh|rnn_relu)_cell$"  # One time step of a recurrent network.
# Operators that factorize or invert a matrix, or solve equations. Their errors, and those of the products around them, grow with the
# condition number of the matrix.
FACTORIZATIONS = (
    r"^aten::_?(linalg_(cholesky|lu|qr|svd|eig|inv|solve|lstsq|pinv|ldl)|cholesky|triangular_solve|lu_solve|svd|inverse)"
)
# Operators of torch.linalg that do more than multiply matrices, and the autograd nodes of their backward passes.
LINEAR_ALGEBRA = (
    r"^aten::_?(linalg_([^mv]|matrix_exp)|cholesky|triangular_solve|lu_solve|svd|inverse|pinverse|logdet|slogdet|ormqr)"
    r"|^(Linalg|Cholesky|TriangularSolve|LuSolve|Svd|Inverse|Logdet|Slogdet|Ormqr)\w*Backward\d*$"
)
EVIDENCE_ROWS = 5  # The largest events are enough evidence; more rows only lengthen the page.
MAX_SPANS = 1000  # More spans cannot be distinguished on a timeline.
_SIGNATURES = (
    "SELECT o.cpu_op_id, s.input_dims, s.concrete_inputs FROM cpu_ops o JOIN signatures s USING (signature_id) "
    "WHERE o.cpu_op_id IN (SELECT unnest(?::BIGINT[]))"
)


@dataclass(frozen=True)
class CountedEvents:
    """Events of the counted steps, with the number of these steps.

    ``frame`` has the columns id, name, start_ns, end_ns, step, and columns that the query adds.
    """

    frame: pd.DataFrame
    steps: int

    @classmethod
    def empty(cls, steps: int, *columns: str) -> CountedEvents:
        """Return an empty ``CountedEvents`` whose frame also has the ``columns``."""
        return cls(_empty_frame(*columns), steps)

    @property
    def count_per_step(self) -> float:
        """Mean number of events per step."""
        return len(self.frame) / max(self.steps, 1)

    @property
    def ms_per_step(self) -> float:
        """Mean sum of durations per step."""
        return float((self.frame["end_ns"] - self.frame["start_ns"]).sum()) / 1e6 / max(self.steps, 1)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the events."""
        return tuple(int(i) for i in self.frame["id"])

    def rows(self, limit: int = EVIDENCE_ROWS) -> list[Row]:
        """Return the longest events as evidence rows that link to the timeline."""
        longest = self.frame.assign(ms=(self.frame["end_ns"] - self.frame["start_ns"]) / 1e6).nlargest(limit, "ms")
        return [
            {"name": str(r["name"]), "start_ns": int(r["start_ns"]), "end_ns": int(r["end_ns"]), "ms": float(r["ms"])}
            for r in longest.to_dict("records")
        ]

    def spans(self, limit: int = MAX_SPANS) -> tuple[tuple[int, int], ...]:
        """Return start and end of the longest ``limit`` events, absolute ns, in order of time."""
        times = self.frame[["start_ns", "end_ns"]]
        if len(times) > limit:
            times = times.loc[(times["end_ns"] - times["start_ns"]).nlargest(limit).index]
        return tuple(sorted((int(start), int(end)) for start, end in times.itertuples(index=False)))

    def where(self, mask: Any) -> CountedEvents:
        """Return the events that ``mask`` selects."""
        return CountedEvents(self.frame[mask].reset_index(drop=True), self.steps)


def calls(context: RuleContext, pattern: str) -> CountedEvents:
    """Return the runtime calls of the counted steps whose name matches the regular expression.

    Adds the columns cpu_op_id and thread_id.
    """
    return _events_begun_in_steps(context, "runtime_calls", "call_id", pattern, "cpu_op_id", "thread_id")


def operators(context: RuleContext, pattern: str) -> CountedEvents:
    """Return the operators and annotations of the counted steps whose name matches the regular expression.

    Adds the column thread_id.
    """
    return _events_begun_in_steps(context, "cpu_ops", "cpu_op_id", pattern, "thread_id")


def recorded_arguments(context: RuleContext, ids: Sequence[int]) -> dict[int, tuple[list[Any], list[Any]]]:
    """Return the shapes and the values of the arguments of operators, by operator id.

    Lists are empty if the trace has no shapes or values.
    """
    rows = context.recording.rows(_SIGNATURES, [list(ids)])
    return {int(op): (json.loads(dims or "[]"), json.loads(concrete or "[]")) for op, dims, concrete in rows}


FACTORIZATION_RISK = "The step factorizes matrices or solves equations, which may need all bits of FP32. Try the change on a copy of the loop first."


def factorizes(context: RuleContext) -> bool:
    """Return whether the counted steps factorize or invert matrices, which may need all bits of FP32."""
    return bool(operators(context, FACTORIZATIONS).count_per_step)


FOURIER_TRANSFORMS = r"^aten::_fft_"
# torch.fft accepts fp16 for lengths that are powers of two, and never bf16: "Unsupported dtype BFloat16".
FOURIER_RISK = "torch.fft refuses bf16, which autocast does not change: pass x.float() to it."


def transforms(context: RuleContext) -> bool:
    """Return whether the counted steps call ``torch.fft``."""
    return bool(operators(context, FOURIER_TRANSFORMS).count_per_step)


def ops_outside_autocast(context: RuleContext) -> NDArray[np.int64]:
    """Return the gpu_op_ids of work whose dtype autocast does not change.

    ``torch.linalg`` launches such work, because its backward passes multiply in the dtype of their matrices. The optimizer does too,
    because its step runs outside the autocast context.
    """
    recording, device = context.recording, context.rank.device
    return np.concatenate([launched_inside(recording, device, LINEAR_ALGEBRA), launched_by_optimizer(recording, device)])


def python_events(context: RuleContext, pattern: str) -> CountedEvents:
    """Return the Python calls of the counted steps whose name matches the regular expression."""
    return _events_begun_in_steps(context, "python_calls", "python_call_id", pattern)


@once
def _events_begun_in_steps(context: RuleContext, table: str, key: str, pattern: str, *columns: str) -> CountedEvents:
    """Return the rows of a host event table that began in a counted step, with the ``columns``."""
    names = context.recording.named(pattern)
    if not names:
        return CountedEvents.empty(len(context.rank.counted), *columns)
    frame = context.recording.frame(
        f"SELECT {', '.join((f'e.{key} AS id, e.name, e.start_ns, e.start_ns + e.dur_ns AS end_ns, t.step', *columns))} FROM named_{table} e "
        "JOIN steps t ON t.device = ? AND t.counted AND e.start_ns >= t.host_start_ns AND e.start_ns < t.host_end_ns "
        f"WHERE e.name_id IN (SELECT unnest(?::INTEGER[])) ORDER BY e.{key}",
        [context.rank.device, names],
    )
    return CountedEvents(frame, len(context.rank.counted))


@cache
def _empty_frame(*columns: str) -> pd.DataFrame:
    types = {"id": np.int64, "name": "str", "start_ns": np.int64, "end_ns": np.int64, "step": np.int32}
    return pd.DataFrame([], columns=[*types, *columns]).astype(types | dict.fromkeys(columns, np.int64))


def launching_calls(context: RuleContext, ops: Sequence[int]) -> tuple[int, ...]:
    """Return the calls that launched these GPU operations."""
    rows = context.recording.rows(
        "SELECT DISTINCT call_id FROM gpu_ops WHERE gpu_op_id IN (SELECT unnest(?::BIGINT[])) AND call_id IS NOT NULL ORDER BY 1",
        [list(ops)],
    )
    return tuple(int(row[0]) for row in rows)


def lost_in_calls_ms(context: RuleContext, cause: str, ids: tuple[int, ...], *, owner: str | None = None) -> float:
    """Return the ms per step of the run that these calls lose to ``cause``, for one ``owner`` or for all.

    The calls are assumed to have the same share of the loss as in the recording.
    """
    if not ids:
        return 0.0
    rows = context.recording.rows(
        "SELECT coalesce(sum(end_ns - start_ns) FILTER (call_id IN (SELECT unnest(?::BIGINT[]))), 0), coalesce(sum(end_ns - start_ns), 0) "
        "FROM gaps WHERE device = ? AND cause = ? AND owner = coalesce(?, owner)",
        [list(ids), context.rank.device, cause, owner],
    )
    in_calls_ns, total_ns = rows[0]
    return context.lost_ms(cause, owner=owner) * float(in_calls_ns) / float(total_ns) if total_ns else 0.0
