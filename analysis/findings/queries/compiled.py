"""Graph breaks of torch.compile, found from the trace alone.

Dynamo runs a compiled function as ``Torch-Compiled Region: FRAME/VERSION``. After a graph break, Dynamo compiles the rest of the
function as a separate function, which the first one calls at its end. So each region inside another region shows one break.
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
DYNAMO_CAUSES = ("launch_bound", "python_host")  # Include cache lookups, guard checks and function calls.


def regions(recording: Recording) -> pd.DataFrame:
    """Return the compiled regions in order of start.

    The columns are id, name, thread_id, start_ns, end_ns and enclosing_name, which is None for an outermost region.
    """
    if not recording.named(f"^{REGION}"):
        return pd.DataFrame(columns=["id", "name", "thread_id", "start_ns", "end_ns", "enclosing_name"])
    frame = recording.frame(
        "SELECT o.cpu_op_id AS id, o.name, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns FROM named_cpu_ops o "
        "WHERE starts_with(o.name, ?) ORDER BY o.thread_id, o.start_ns, o.cpu_op_id",
        [REGION],
    )
    enclosing_names: list[str | None] = []
    open_regions: list[tuple[int, int, str]] = []
    for name, thread, start_ns, end_ns in frame[["name", "thread_id", "start_ns", "end_ns"]].itertuples(index=False):
        while open_regions and (open_regions[-1][0] != thread or open_regions[-1][1] <= start_ns):
            open_regions.pop()
        enclosing_names.append(open_regions[-1][2] if open_regions else None)
        open_regions.append((thread, end_ns, name))
    frame["enclosing_name"] = pd.Series(enclosing_names, dtype=object, index=frame.index)
    return frame.sort_values(["start_ns", "id"], ignore_index=True)


@dataclass(frozen=True)
class GraphBreaks:
    """The graph breaks in the counted steps.

    ``rows`` has one row per break: the row of ``regions`` for the region after this break.
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
        nested = all_regions[all_regions["enclosing_name"].notna()][["thread_id", "start_ns"]]
        pieces = recording.frame(
            "SELECT o.thread_id, o.start_ns FROM named_cpu_ops o JOIN steps t ON t.device = ? AND o.start_ns >= t.host_start_ns "
            "AND o.start_ns < t.host_end_ns WHERE o.name = ? QUALIFY row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) > 1 "
            "AND row_number() OVER (PARTITION BY t.step ORDER BY o.start_ns) <= 1 + ?",
            [self.context.rank.device, BACKWARD, round(self.per_step)],
        )
        first_launches = self._first_launches(pd.concat([nested, pieces]))
        return tuple(sorted({int(call) for call in first_launches if call >= 0}))

    def _first_launches(self, moments: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the first launching call at or after each moment on its thread, -1 if there is none.

        ``moments`` has the columns thread_id and start_ns.
        """
        launches = self.context.recording.frame(
            "SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0 AND thread_id IN (SELECT unnest(?::INTEGER[])) ORDER BY start_ns",
            [sorted({int(thread) for thread in moments["thread_id"]})],
        )
        first_calls = np.full(len(moments), -1, np.int64)
        threads, moments_ns = moments["thread_id"].to_numpy(), moments["start_ns"].to_numpy(np.int64)
        for thread in np.unique(threads):
            thread_launches, on_thread = launches[launches["thread_id"] == thread], threads == thread
            index = np.searchsorted(thread_launches["start_ns"].to_numpy(np.int64), moments_ns[on_thread])
            first_calls[on_thread] = np.append(thread_launches["call_id"].to_numpy(np.int64), -1)[index]
        return first_calls

    @cached_property
    def edits(self) -> list[Edit]:
        """Edits that reduce the host time before ``calls`` to that of other launches. Empty without a replay."""
        if self.context.whatif is None or not self.calls:
            return []
        host = self.context.whatif.problem.host
        after_break = np.isin(host.call, np.array(self.calls)) & (host.pred >= 0)
        gap_ns = self._dynamo_ns(host.gap_parts)
        other_gaps_ns = gap_ns[~after_break & host.launches & (host.pred >= 0)]
        mean_ns = float(gap_ns[after_break].mean()) if after_break.any() else 0.0
        keep = min(1.0, float(np.median(other_gaps_ns)) / mean_ns) if len(other_gaps_ns) and mean_ns else 1.0
        return [WithoutHostCause(cause, keep, self.calls) for cause in DYNAMO_CAUSES] if keep < 1 else []

    @property
    def host_ms(self) -> float:
        """Extra host time per step that the breaks cost in the run, ms. 0 if not known."""
        if self.context.whatif is None or not self.edits:
            return 0.0
        return float(self._lost_ms(np.array(self.calls)).sum())

    @property
    def ms_by_break(self) -> npt.NDArray[np.float64] | None:
        """The part of ``host_ms`` before the first launch after each break, one value per row.

        The rest of ``host_ms`` lies between pieces of the backward pass, and the trace does not show to which break those pieces
        belong. None if ``host_ms`` is not known.
        """
        return self._lost_ms(self._first_launches(self.rows)) if self.host_ms else None

    def _lost_ms(self, calls: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the extra host time before each of ``calls``, in ms of the run's step.

        The time is scaled from the replay's step to the run's step, because the replayed host may be slower or faster. The time
        is 0 if a call is not a node of the counted steps.
        """
        assert self.context.whatif is not None
        problem, counted = self.context.whatif.problem, self.context.whatif.counted
        nodes = problem.ops.node[(problem.ops.node >= 0) & np.isin(problem.ops.step, counted)]
        keep = next(edit.keep_share for edit in self.edits if isinstance(edit, WithoutHostCause))
        gap_ns = self._dynamo_ns(problem.host.gap_parts)
        ns_of_call = dict(zip(problem.host.call[nodes].tolist(), gap_ns[nodes].tolist(), strict=True))
        lost_ns = np.array([ns_of_call.get(int(call), 0) for call in calls], np.float64) * (1 - keep)
        ms = lost_ns / 1e6 / max(len(counted), 1)
        best, replayed_ms = self.context.rank.best, self.context.whatif.step_ms()
        return ms * best.ms / replayed_ms if best.represented and best.ms and replayed_ms else ms

    @staticmethod
    def _dynamo_ns(gap_parts: I64) -> I64:
        return np.asarray(gap_parts[:, [HOST_CAUSES.index(cause) for cause in DYNAMO_CAUSES]].sum(axis=1))


def lookups_without_code(context: RuleContext) -> float:
    """Return the number of Dynamo cache lookups per step that find no compiled code."""
    return operators(context, f"^{LOOKUP}").count_per_step - operators(context, f"^{REGION}").count_per_step


def graph_breaks(context: RuleContext) -> GraphBreaks:
    """Return the graph breaks in the counted steps."""
    all_regions = regions(context.recording)
    nested = all_regions[all_regions["enclosing_name"].notna()]
    counted, start_ns = context.rank.counted, nested["start_ns"].to_numpy(np.int64)
    step = np.searchsorted(counted["host_start_ns"].to_numpy(np.int64), start_ns, side="right") - 1
    step_end_ns = counted["host_end_ns"].to_numpy(np.int64)[np.maximum(step, 0)]
    in_step = (step >= 0) & (start_ns < step_end_ns)
    return GraphBreaks(context, nested[in_step].reset_index(drop=True))
