"""Where a step leaves code that torch.compile made, by the trace alone.

Dynamo runs a compiled function as ``Torch-Compiled Region: FRAME/VERSION``. After a break of the graph the rest of the function is compiled as
a function of its own, which is called at the end of the first: a region inside a region is what follows one break. Regions beside each other
are functions that were compiled apart.
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
from sawtooth.analysis.replay.machine import I64
from sawtooth.analysis.store.library import Recording

REGION = "Torch-Compiled Region"
LOOKUP = "TorchDynamo Cache Lookup"  # before each region, and before what is not compiled any more
BACKWARD = "CompiledFunctionBackward"  # each piece of a broken graph has a backward pass of its own
# Looking up code, checking guards and calling functions, inside operators and between them.
DYNAMO_CAUSES = ("launch_bound", "python_host")


def regions(recording: Recording) -> pd.DataFrame:
    """Return the compiled regions in order of start: id, name, thread_id, start_ns, end_ns, and ``within``, the name of the region around
    each, None where there is none."""
    if not recording.named(f"^{REGION}"):
        return pd.DataFrame(columns=["id", "name", "thread_id", "start_ns", "end_ns", "within"])
    entered = recording.frame(
        "SELECT o.cpu_op_id AS id, o.name, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns FROM named_cpu_ops o "
        "WHERE starts_with(o.name, ?) ORDER BY o.thread_id, o.start_ns, o.cpu_op_id",
        [REGION],
    )
    around: list[str | None] = []
    open_: list[tuple[int, int, str]] = []
    for name, thread, start, end in entered[["name", "thread_id", "start_ns", "end_ns"]].itertuples(index=False):
        while open_ and (open_[-1][0] != thread or open_[-1][1] <= start):
            open_.pop()
        around.append(open_[-1][2] if open_ else None)
        open_.append((thread, end, name))
    return entered.assign(within=pd.Series(around, dtype=object, index=entered.index)).sort_values(
        ["start_ns", "id"], ignore_index=True
    )


@dataclass(frozen=True)
class Breaks:
    """The breaks of the graph in the counted steps. ``rows`` has a row a break: what ``regions`` returns of the region after it."""

    context: RuleContext
    rows: pd.DataFrame

    @property
    def per_step(self) -> float:
        """Breaks a step."""
        return len(self.rows) / max(len(self.context.rank.counted), 1)

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """The first launch after each break, and in each further piece of the backward pass, of all steps."""
        recording = self.context.recording
        every = regions(recording)
        after = every[every["within"].notna()][["thread_id", "start_ns"]]
        pieces = recording.frame(
            "SELECT o.thread_id, o.start_ns FROM named_cpu_ops o JOIN steps t ON t.device = ? AND o.start_ns >= t.host_start_ns "
            "AND o.start_ns < t.host_end_ns WHERE o.name = ? QUALIFY row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) > 1 "
            "AND row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) <= 1 + ?",
            [self.context.rank.device, BACKWARD, round(self.per_step)],
        )
        first = self._first_launches(pd.concat([after, pieces]))
        return tuple(sorted({int(call) for call in first if call >= 0}))

    def _first_launches(self, moments: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the first call that launches on a row's thread from its moment on, -1 where none does; one a row of ``moments`` (thread_id, start_ns)."""
        launches = self.context.recording.frame(
            "SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0 AND thread_id IN (SELECT unnest(?::INTEGER[])) ORDER BY start_ns",
            [sorted({int(thread) for thread in moments["thread_id"]})],
        )
        first = np.full(len(moments), -1, np.int64)
        threads = moments["thread_id"].to_numpy()
        for thread in np.unique(threads):
            own, here = launches[launches["thread_id"] == thread], threads == thread
            place = np.searchsorted(own["start_ns"].to_numpy(np.int64), moments["start_ns"].to_numpy(np.int64)[here])
            first[here] = np.append(own["call_id"].to_numpy(np.int64), -1)[place]
        return first

    @cached_property
    def edits(self) -> list[Edit]:
        """The host comes to these launches as quickly as to those between them. Empty without a replay."""
        if self.context.whatif is None or not self.calls:
            return []
        host = self.context.whatif.problem.host
        after = np.isin(host.call, np.array(self.calls)) & (host.pred >= 0)
        gap = self._dynamo(host.gap_parts)
        usual = gap[~after & host.launches & (host.pred >= 0)]
        mean = float(gap[after].mean()) if after.any() else 0.0
        keep = min(1.0, float(np.median(usual)) / mean) if len(usual) and mean else 1.0
        return [WithoutHostCause(cause, keep, self.calls) for cause in DYNAMO_CAUSES] if keep < 1 else []

    @property
    def host_ms(self) -> float:
        """What the host of the run needs a step beyond coming from one launch to the next; 0 where nothing tells.

        The replay's host may be slower or quicker than the run's, whose step it is part of.
        """
        if self.context.whatif is None or not self.edits:
            return 0.0
        return float(self._lost_ms(np.array(self.calls)).sum())

    @property
    def ms_of_each(self) -> npt.NDArray[np.float64] | None:
        """What ``host_ms`` has of each of ``rows``: the host's way to the first launch after it. The rest is between pieces of the backward pass, of which
        the trace does not tell the breaks. None where ``host_ms`` is not known."""
        return self._lost_ms(self._first_launches(self.rows)) if self.host_ms else None

    def _lost_ms(self, calls: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return what the host takes too long for each of ``calls``, ms a step of the run; 0 where a call is no node of the counted steps."""
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


def uncompiled(context: RuleContext) -> float:
    """Return how many calls a step Dynamo looks up in vain: no code is kept for them, and none is made any more, so they run as they are written."""
    return operators(context, f"^{LOOKUP}").count - operators(context, f"^{REGION}").count


def breaks(context: RuleContext) -> Breaks:
    """Return the breaks of the graph in the counted steps."""
    inner = regions(context.recording)
    inner = inner[inner["within"].notna()]
    counted = context.rank.counted
    step = np.searchsorted(counted["host_start_ns"].to_numpy(np.int64), inner["start_ns"].to_numpy(np.int64), side="right") - 1
    ends = counted["host_end_ns"].to_numpy(np.int64)
    inside = (step >= 0) & (inner["start_ns"].to_numpy(np.int64) < ends[np.maximum(step, 0)])
    return Breaks(context, inner[inside].reset_index(drop=True))
