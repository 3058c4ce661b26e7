"""Copies of the lead device's counted steps, among them checkpoints and tensors made on the host."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sawtooth.analysis.derive.host_only import LOADING
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import CountedEvents
from sawtooth.analysis.findings.recorded.interval_sql import with_latest_end
from sawtooth.analysis.run.model import Action, CodeChange

PAGEABLE_TO_DEVICE = "(?i)pageable *-> *device|HtoD.*pageable"
PAGEABLE_TO_HOST = "(?i)device *-> *pageable|DtoH.*pageable"
PINNED_BYTES_PER_NS = 55.0  # Measured on an H200 with PCIe 5 ×16: 55.5 GB/s pinned, 10 to 23 GB/s pageable.
MIN_CHECKPOINT_COPIES = 16  # Tensors copied to the host in one step. Reading losses and norms copies only single numbers.
MIN_CHECKPOINT_BYTES = 1_000_000  # In one step. A smaller copy cannot be a model.
# Bytes copied to pageable memory in one step, in at least two copies. The state of a model with few large tensors is not smaller.
# Values that a loop reads in some steps, for logs or tests, are smaller.
MIN_BYTES_OF_FEW_TENSORS = 50_000_000
SAVE_LESS = Action(
    "Save",
    "checkpoints less often",
    ", and in the background: async_save copies the state once and writes it during the training.",
)
SAVE_ASYNC = CodeChange(
    "PyTorch",
    "if step % 2 == 0:\n    torch.save(state, path)",
    "from torch.distributed.checkpoint import async_save\nif step % 1000 == 0:\n    if pending: pending.result()\n    pending = async_save(state, checkpoint_id=path)   # pending = None before the loop; needs init_process_group('cpu:gloo,cuda:nccl')",
)
FEWER_CHECKPOINTS_RISK = (
    "With fewer checkpoints, a crash loses more steps. Saving in the background needs a copy of the state in host memory."
)
MAKERS = r"^aten::(triu|tril|ones|zeros|full|arange|eye|linspace|rand|randn|randint|randperm|normal_|uniform_|bernoulli_|fill_|masked_fill_?|tril_|triu_|one_hot)$"
# Before PyTorch 1.12, ``record_function`` makes a handle with ``aten::zeros`` directly before the range that it opens.
HANDLE_MAKER, MAX_HANDLE_NS = "aten::zeros", 50_000
# ``torch.tensor`` of Python numbers, and ``x[i] = …``. Only outermost operators count, because ``.bool()`` also copies.
FILLERS = r"^aten::(lift_fresh|copy_|index_put_)$"


@once
def copies(context: RuleContext, pattern: str) -> CountedEvents:
    """Return the copies launched in counted steps whose name matches. Adds the columns bytes and call_id."""
    names = context.recording.named(pattern)
    if not names:
        return CountedEvents.empty(len(context.rank.counted), "bytes", "call_id")
    frame = context.recording.frame(
        "SELECT gpu_op_id AS id, name, start_ns, start_ns + dur_ns AS end_ns, step, bytes, call_id FROM step_gpu_ops "
        "WHERE device = ? AND counted AND kind = 'memcpy' AND name_id IN (SELECT unnest(?::INTEGER[])) ORDER BY gpu_op_id",
        [context.rank.device, names],
    )
    return CountedEvents(frame, len(context.rank.counted))


def waits_for_copies(context: RuleContext, calls: Sequence[int]) -> tuple[int, ...]:
    """Return the synchronizing calls in the operators that launched the copies ``calls``."""
    if not calls:
        return ()
    rows = context.recording.rows(
        "SELECT w.call_id FROM named_runtime_calls w WHERE regexp_matches(w.name, 'Synchronize') AND w.cpu_op_id IN "
        "(SELECT cpu_op_id FROM runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])) AND cpu_op_id IS NOT NULL) ORDER BY 1",
        [list(calls)],
    )
    return tuple(int(row[0]) for row in rows)


@once
def made_tensors_may_slow_run(context: RuleContext) -> bool:
    """Return whether tensors made on the host may explain why the run is slower than its profile.

    The profile must have copies of such tensors. It must not have a data loader, which could also explain the difference.
    """
    if context.rank.best.represented or context.recording.named("DataLoader"):
        return False
    return bool(copies_of_made_tensors(context).count_per_step)


# Launching calls, each with the end of the previous launch of its thread.
_LAUNCHING = (
    "launching AS (SELECT call_id, thread_id, start_ns, "
    "lag(start_ns + dur_ns) OVER (PARTITION BY thread_id ORDER BY start_ns) AS since FROM runtime_calls WHERE gpu_ops > 0)"
)
# A loop that takes a batch from the loader copies the batch before it computes on it.
_BATCH_COPIES = """
WITH copying AS (SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE call_id IN (SELECT unnest($calls::BIGINT[]))),
loads AS (SELECT thread_id, start_ns + dur_ns AS end_ns FROM named_cpu_ops WHERE contains(name, $loading)),
kernels AS (SELECT c.thread_id, c.start_ns FROM runtime_calls c JOIN gpu_ops g USING (call_id) WHERE g.kind = 'kernel')
SELECT c.call_id FROM copying c ASOF JOIN loads l ON l.thread_id = c.thread_id AND l.end_ns <= c.start_ns
ASOF LEFT JOIN kernels k ON k.thread_id = c.thread_id AND k.start_ns <= c.start_ns
WHERE k.start_ns IS NULL OR k.start_ns < l.end_ns"""


def batch_transfer_note(context: RuleContext, transfers: CountedEvents) -> str:
    """Return a note if the ``transfers`` are the copy of the batch, else an empty text.

    They are the batch if most of their bytes are copied after the loader and before any kernel launch.
    """
    if not context.recording.named("DataLoader"):
        return ""
    frame = transfers.frame[transfers.frame["call_id"].notna()]
    parameters = {"calls": [int(call) for call in frame["call_id"]], "loading": LOADING}
    after_loader = {int(row[0]) for row in context.recording.rows(_BATCH_COPIES, parameters)}
    batch_bytes = frame["bytes"].fillna(0)[frame["call_id"].isin(after_loader)].sum()
    is_batch = 2 * batch_bytes > transfers.frame["bytes"].fillna(0).sum()
    return " (the transfer of the batch)" if is_batch else ""


@once
def checkpoint_copies(context: RuleContext) -> CountedEvents:
    """Return the copies to the host in steps that probably write a checkpoint.

    A checkpoint copies many tensors, or a few large tensors in only some of the steps. Large copies in every step are results.
    One profiled step cannot show this difference, so the result is then empty.
    """
    to_host = copies(context, "(?i)DtoH|DeviceToHost")
    if to_host.steps < 2:
        return CountedEvents(to_host.frame[:0], to_host.steps)
    frame = to_host.frame[to_host.frame["call_id"].notna()]
    steps = _steps_that_copy(frame, MIN_CHECKPOINT_COPIES, MIN_CHECKPOINT_BYTES)
    pageable = frame[frame["name"].str.contains(PAGEABLE_TO_HOST)]
    steps_with_large_copies = _steps_that_copy(pageable, 2, MIN_BYTES_OF_FEW_TENSORS)
    if len(steps_with_large_copies) < to_host.steps:
        steps |= steps_with_large_copies
    return CountedEvents(frame[frame["step"].isin(steps)].reset_index(drop=True), to_host.steps)


def _steps_that_copy(frame: pd.DataFrame, min_copies: int, min_bytes: int) -> set[int]:
    totals = frame.groupby("step")["bytes"].agg(["count", "sum"])
    return set(totals[(totals["count"] >= min_copies) & (totals["sum"] >= min_bytes)].index)


@once
def checkpoint_calls(context: RuleContext) -> tuple[int, ...]:
    """Return the calls of ``checkpoint_copies`` and the waits for these copies."""
    calls = {int(call) for call in checkpoint_copies(context).frame["call_id"]}
    return tuple(sorted(calls.union(waits_for_copies(context, sorted(calls)))))


@once
def copies_of_made_tensors(context: RuleContext) -> CountedEvents:
    """Return the pageable copies of tensors that an operator made on the host directly before the copy.

    The column ``maker`` names this operator, which ran on the copying thread after the thread's previous launch. These tensors are
    left out:
    - tensors made inside the data loader's annotation, because they are part of loading
    - handles of ``record_function``
    - tensors that are then filled with data that only the host has, such as text converted to numbers row by row
    - tensors for which other operators take longer than the maker, such as images chosen by ``randperm`` and normalized
    """
    pageable = copies(context, PAGEABLE_TO_DEVICE)
    calls = [int(call) for call in pageable.frame["call_id"].dropna()]
    if not calls:  # Without calls, the query below would take seconds to find nothing among five million events.
        return CountedEvents(pageable.frame.assign(maker=""), pageable.steps)
    loading = "(SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM cpu_ops JOIN names USING (name_id) WHERE regexp_matches(name, 'DataLoader'))"
    makers = context.recording.frame(
        f"WITH {_LAUNCHING}, made AS (SELECT o.* FROM (SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns, dur_ns, name FROM cpu_ops JOIN names USING (name_id) "
        f"WHERE regexp_matches(name, $2)) o ASOF LEFT JOIN ({with_latest_end(loading)}) d ON d.thread_id = o.thread_id AND o.start_ns >= d.start_ns "
        "ASOF LEFT JOIN (SELECT thread_id, start_ns FROM cpu_ops JOIN names USING (name_id) WHERE kind = 'annotation' OR name LIKE '%#%') r ON r.thread_id = o.thread_id AND r.start_ns >= o.end_ns "
        f"WHERE (d.end_ns IS NULL OR o.start_ns >= d.end_ns) AND NOT (o.name = '{HANDLE_MAKER}' AND coalesce(r.start_ns - o.end_ns < {MAX_HANDLE_NS}, false))) "
        "SELECT l.call_id, arg_max(o.name, o.dur_ns) AS maker, max(o.end_ns) AS made_ns, sum(o.dur_ns) AS maker_ns FROM made o "
        "ASOF JOIN launching l ON l.thread_id = o.thread_id AND o.end_ns <= l.start_ns "
        "WHERE o.start_ns >= l.since AND l.call_id IN (SELECT unnest($1::BIGINT[])) GROUP BY l.call_id",
        [calls, MAKERS],
    )
    makers = makers[~makers["call_id"].isin(_filling_calls(context, makers) | _computed_calls(context, makers))]
    makers = makers.drop(columns="maker_ns")
    frame = pageable.frame.merge(makers, on="call_id", how="inner") if len(makers) else pageable.frame.iloc[:0].assign(maker="")
    return CountedEvents(frame, pageable.steps)


def _filling_calls(context: RuleContext, makers: pd.DataFrame) -> set[int]:
    """Return the calls of ``makers`` whose tensor is filled with host data before the call.

    ``makers`` has the columns call_id and made_ns.
    """
    fillers = context.recording.named(FILLERS)
    if not len(makers) or not fillers:
        return set()
    rows = context.recording.rows(
        "WITH made AS (SELECT c.call_id, c.thread_id, c.start_ns, m.made_ns FROM runtime_calls c JOIN "
        "(SELECT unnest($calls::BIGINT[]) AS call_id, unnest($made::BIGINT[]) AS made_ns) m USING (call_id)) "
        "SELECT DISTINCT m.call_id FROM (SELECT * FROM cpu_ops WHERE list_contains($fillers, name_id) AND start_ns BETWEEN (SELECT min(made_ns) FROM made) "
        "AND (SELECT max(start_ns) FROM made)) f ASOF JOIN made m ON m.thread_id = f.thread_id AND f.start_ns + f.dur_ns <= m.start_ns "
        "WHERE f.start_ns >= m.made_ns AND NOT EXISTS (FROM cpu_ops p WHERE p.cpu_op_id = f.parent_id AND p.kind = 'op')",
        {"calls": makers["call_id"].tolist(), "made": makers["made_ns"].tolist(), "fillers": fillers},
    )
    return {int(row[0]) for row in rows}


def _computed_calls(context: RuleContext, makers: pd.DataFrame) -> set[int]:
    """Return the calls of ``makers`` for whose tensor other operators take longer than ``maker_ns``."""
    if not len(makers):
        return set()
    rows = context.recording.rows(
        f"WITH {_LAUNCHING}, wanted AS (SELECT unnest($calls::BIGINT[]) AS call_id, unnest($ns::BIGINT[]) AS maker_ns), "
        "outermost AS (SELECT o.thread_id, o.start_ns, o.dur_ns, o.start_ns + o.dur_ns AS end_ns FROM cpu_ops o JOIN names n USING (name_id) "
        "WHERE o.kind = 'op' AND NOT regexp_matches(n.name, $makers) AND NOT EXISTS (FROM cpu_ops p WHERE p.cpu_op_id = o.parent_id AND p.kind = 'op')) "
        "SELECT l.call_id FROM outermost o ASOF JOIN launching l ON l.thread_id = o.thread_id AND o.end_ns <= l.start_ns JOIN wanted w USING (call_id) "
        "WHERE o.start_ns >= l.since GROUP BY l.call_id HAVING sum(o.dur_ns) > any_value(w.maker_ns)",
        {"calls": makers["call_id"].tolist(), "ns": makers["maker_ns"].astype(int).tolist(), "makers": MAKERS},
    )
    return {int(row[0]) for row in rows}
