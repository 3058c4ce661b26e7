"""Graph breaks of torch.compile, found from the trace alone.

Dynamo runs a compiled function as ``Torch-Compiled Region: FRAME/VERSION``. After a graph break, the rest of the function is
compiled as a separate function, which the first one calls at its end. So each region inside another region shows one break.
Regions that are not nested are functions that were compiled separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.replay.simulation import I64
from sawtooth.analysis.store.library import Recording

REGION = "Torch-Compiled Region"
LOOKUP = "TorchDynamo Cache Lookup"  # Recorded before each region, and before code that is no longer compiled.
BACKWARD = "CompiledFunctionBackward"  # Each piece of a broken graph has its own backward pass.
# Time of cache lookups, guard checks and function calls, inside operators and between them.
DYNAMO_CAUSES = ("launch_bound", "python_host")


def regions(recording: Recording) -> pd.DataFrame:
    """Return the compiled regions in order of start.

    Columns: id, name, thread_id, start_ns, end_ns, and ``within``: the name of the enclosing region, or None.
    """
    if not recording.named(f"^{REGION}"):
        return pd.DataFrame(columns=["id", "name", "thread_id", "start_ns", "end_ns", "within"])
    entered = recording.frame(
        "SELECT o.cpu_op_id AS id, o.name, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns FROM named_cpu_ops o "
        "WHERE starts_with(o.name, ?) ORDER BY o.thread_id, o.start_ns, o.cpu_op_id",
        [REGION],
    )
    enclosing: list[str | None] = []
    open_: list[tuple[int, int, str]] = []
    for name, thread, start, end in entered[["name", "thread_id", "start_ns", "end_ns"]].itertuples(index=False):
        while open_ and (open_[-1][0] != thread or open_[-1][1] <= start):
            open_.pop()
        enclosing.append(open_[-1][2] if open_ else None)
        open_.append((thread, end, name))
    return entered.assign(within=pd.Series(enclosing, dtype=object, index=entered.index)).sort_values(
        ["start_ns", "id"], ignore_index=True
    )


@dataclass(frozen=True)
class Breaks:
    """The graph breaks in the counted steps.

    ``rows`` has one row per break: the row of ``regions`` for the region after the break.
    """

    context: RuleContext
    rows: pd.DataFrame

    @property
    def per_step(self) -> float:
        """Graph breaks per step."""
        return len(self.rows) / max(len(self.context.rank.counted), 1)

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """The first launch after each break, and in each further piece of the backward pass, in all steps."""
        recording = self.context.recording
        all_regions = regions(recording)
        inner = all_regions[all_regions["within"].notna()][["thread_id", "start_ns"]]
        pieces = recording.frame(
            "SELECT o.thread_id, o.start_ns FROM named_cpu_ops o JOIN steps t ON t.device = ? AND o.start_ns >= t.host_start_ns "
            "AND o.start_ns < t.host_end_ns WHERE o.name = ? QUALIFY row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) > 1 "
            "AND row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) <= 1 + ?",
            [self.context.rank.device, BACKWARD, round(self.per_step)],
        )
        first = self._first_launches(pd.concat([inner, pieces]))
        return tuple(sorted({int(call) for call in first if call >= 0}))

    def _first_launches(self, moments: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the first launching call at or after each moment on its thread, -1 if there is none.

        ``moments`` has the columns thread_id and start_ns.
        """
        launches = self.context.recording.frame(
            "SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0 AND thread_id IN (SELECT unnest(?::INTEGER[])) ORDER BY start_ns",
            [sorted({int(thread) for thread in moments["thread_id"]})],
        )
        first = np.full(len(moments), -1, np.int64)
        threads = moments["thread_id"].to_numpy()
        for thread in np.unique(threads):
            of_thread, in_thread = launches[launches["thread_id"] == thread], threads == thread
            place = np.searchsorted(of_thread["start_ns"].to_numpy(np.int64), moments["start_ns"].to_numpy(np.int64)[in_thread])
            first[in_thread] = np.append(of_thread["call_id"].to_numpy(np.int64), -1)[place]
        return first

    @cached_property
    def edits(self) -> list[Edit]:
        """Edits that reduce the host time before ``calls`` to the usual; empty without a replay."""
        if self.context.whatif is None or not self.calls:
            return []
        host = self.context.whatif.problem.host
        follows = np.isin(host.call, np.array(self.calls)) & (host.pred >= 0)
        gap = self._dynamo(host.gap_parts)
        usual = gap[~follows & host.launches & (host.pred >= 0)]
        mean = float(gap[follows].mean()) if follows.any() else 0.0
        keep = min(1.0, float(np.median(usual)) / mean) if len(usual) and mean else 1.0
        return [WithoutHostCause(cause, keep, self.calls) for cause in DYNAMO_CAUSES] if keep < 1 else []

    @property
    def host_ms(self) -> float:
        """Extra host time per step that the breaks cost in the run, ms; 0 if not known.

        The time is scaled from the replay's step to the run's step, because the replayed host may be slower or faster.
        """
        if self.context.whatif is None or not self.edits:
            return 0.0
        return float(self._lost_ms(np.array(self.calls)).sum())

    @property
    def ms_of_each(self) -> npt.NDArray[np.float64] | None:
        """The part of ``host_ms`` before the first launch after each break, one value per row.

        None if ``host_ms`` is not known. The rest lies between pieces of the backward pass. The trace does not show to which
        break those pieces belong.
        """
        return self._lost_ms(self._first_launches(self.rows)) if self.host_ms else None

    def _lost_ms(self, calls: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the extra host time before each of ``calls``, in ms of the run's step.

        0 if a call is not a node of the counted steps.
        """
        assert self.context.whatif is not None
        problem, counted = self.context.whatif.problem, self.context.whatif.counted
        node = problem.ops.node[(problem.ops.node >= 0) & np.isin(problem.ops.step, counted)]
        keep = next(edit.keep_share for edit in self.edits if isinstance(edit, WithoutHostCause))
        gaps = dict(zip(problem.host.call[node].tolist(), self._dynamo(problem.host.gap_parts)[node].tolist(), strict=True))
        ms = np.array([gaps.get(int(call), 0) for call in calls], np.float64) * (1 - keep) / 1e6 / max(len(counted), 1)
        best, replayed_ms = self.context.rank.best, self.context.whatif.step_ms()
        return ms * best.ms / replayed_ms if best.represented and best.ms and replayed_ms else ms

    @staticmethod
    def _dynamo(parts: I64) -> I64:
        return np.asarray(parts[:, [HOST_CAUSES.index(cause) for cause in DYNAMO_CAUSES]].sum(axis=1))


def lookups_without_code(context: RuleContext) -> float:
    """Return how many Dynamo cache lookups per step find no code.

    These calls run uncompiled, because Dynamo no longer compiles them.
    """
    return operators(context, f"^{LOOKUP}").count - operators(context, f"^{REGION}").count


def breaks(context: RuleContext) -> Breaks:
    """Return the graph breaks in the counted steps."""
    inner = regions(context.recording)
    inner = inner[inner["within"].notna()]
    counted = context.rank.counted
    step = np.searchsorted(counted["host_start_ns"].to_numpy(np.int64), inner["start_ns"].to_numpy(np.int64), side="right") - 1
    ends = counted["host_end_ns"].to_numpy(np.int64)
    inside = (step >= 0) & (inner["start_ns"].to_numpy(np.int64) < ends[np.maximum(step, 0)])
    return Breaks(context, inner[inside].reset_index(drop=True))
