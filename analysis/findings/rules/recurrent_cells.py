"""A recurrent network calls its cell once for every time step.

What it checks
    Calls of ``LSTMCell``, ``GRUCell`` or ``RNNCell`` in each step (``aten::lstm_cell`` and similar operators), and their
    backward passes.
Why it costs time
    Each call multiplies a few rows with the whole weight. Its backward pass adds another gradient of the whole weight to the
    last one. Only the product with the hidden state must wait for the previous time step. One product each is enough for the
    inputs of all time steps and for all gradients of a weight.
What to do
    Use ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` over the whole sequence, which cuDNN runs in this way.
When it is wrong
    The next input depends on the last output (decoding), so the loop must stay: compile it. There is no finding if attention
    or messages between nodes lie between the calls. The same is true if every few calls have a different batch size. Those
    calls are not time steps of one sequence.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import without_freeing
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import HALF_BITS
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import CELLS, calls_of, operators
from sawtooth.analysis.findings.queries.passes import Passes, at_once, passes
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, KernelWork, estimate
from sawtooth.analysis.knowledge.kernel_work import product_work
from sawtooth.analysis.replay.edits import Edit, FasterHost, TimedOps, WithoutHostCause, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

FEWEST = 8  # Cells per step. Fewer are the first steps of a decoder, not a sequence.
CUDNN = "tf32"  # cuDNN multiplies FP32 in this dtype by default (torch.backends.cudnn.allow_tf32).
# Host time before each launch of a loop. One call of cuDNN needs only the launches.
OPERATORS = ("launch_bound", "python_host")
AS_MUCH = 0.5  # Share of the gain of autocast. A smaller gain means that most products are outside of the loop.
IN_ONE_LAUNCH = 0.05  # Share of the launches' time. For some sizes, cuDNN runs all time steps of a layer in one kernel.
# Operators of attention and of messages between nodes, with which the next input is not known in advance.
MIXES = r"^aten::(index_add_?|scatter_(add|reduce)_?|_?softmax|bmm)$"
IN_TF32 = " The products run in TF32, cuDNN's default for FP32; the slow end of the range is without TF32."
OWN_DROPOUT = "cuDNN's recurrent networks have their own dropout between layers."
TF32_RISK = " They use TF32 unless torch.backends.cudnn.allow_tf32 is off."
SLICED = "SelectBackward"  # The gradient of x[:, t] is a tensor of zeros as large as x, for each time step.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for t in range(x.size(1)):\n    h, c = self.cell(x[:, t], (h, c))\n    outputs.append(h)",
        "self.lstm = nn.LSTM(width, hidden, batch_first=True)   # in __init__; old checkpoints: weight_ih is weight_ih_l0\noutputs, _ = self.lstm(x)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if recurrent cells called one by one take a relevant share of the step."""
    gpu, cells = context.rank.gpu, operators(context, CELLS)
    if gpu is None or cells.count < FEWEST or not _are_time_steps(context, cells.frame):
        return
    cell_passes = passes(context, cells.ids)
    sliced = _slices(context, cells.count)
    cost = ms_per_step(cell_passes.both, context.work_steps) + ms_per_step(sliced, context.work_steps)
    if context.is_trifle(cost):
        return
    name = str(cells.frame["name"].iloc[0]).removeprefix("aten::").removesuffix("_cell").split("_")[0].upper()
    dtypes = cell_passes.both[cell_passes.both["category"] == "gemm"].drop_duplicates("launch_kind")
    in_half = bool(len(dtypes)) and all(product_dtype(row) in HALF_BITS for row in dtypes.itertuples())
    other_edits = _edits_of_other_work(context, cells.frame, cell_passes)
    yield Evidence(
        Advice(
            f"{name} cells are called one by one, {cells.count:.0f} per step: {in_words(cost)} of each step, forward and backward",
            Action(
                "Use",
                f"nn.{name} over the whole sequence",
                ": one product for the inputs of all time steps, one for each gradient of a weight.",
            ),
            note="Predicted with one product for all inputs, one per weight gradient, no sums of gradients, and one product per time step in a single "
            f"call.{'' if in_half else IN_TF32}",
            risk=OWN_DROPOUT if in_half else OWN_DROPOUT + TF32_RISK,
            changes=CHANGES,
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=[*_edits(context, cell_passes, sliced, gpu), *other_edits],
        rows=evidence_of(cell_passes.both, context.work_steps, ("operator",)),
    )


def _are_time_steps(context: RuleContext, cells: pd.DataFrame) -> bool:
    """Return whether the calls can be time steps of sequences whose inputs are all known in advance.

    ``cells`` is a frame as of ``operators``. The batch of a sequence stays the same, or shrinks when its short members end.
    Consecutive calls for graphs or sentences of different sizes are not a sequence.
    """
    rows = context.recording.rows(
        "SELECT s.input_dims->>'$[0][0]' FROM cpu_ops o JOIN signatures s USING (signature_id) WHERE o.cpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY o.start_ns",
        [cells["id"].tolist()],
    )
    change = np.diff(np.array([size for (size,) in rows if size is not None], np.int64))
    if (change > 0).any() and len(cells) / (np.count_nonzero(change) + 1) < FEWEST:
        return False
    mixing = operators(context, MIXES).frame["start_ns"].to_numpy(np.int64)
    mixing_between = np.diff(np.searchsorted(np.sort(mixing), np.sort(cells["start_ns"].to_numpy(np.int64))))
    return bool(np.count_nonzero(mixing_between) < len(mixing_between) / 2)


def _slices(context: RuleContext, cells: float) -> pd.DataFrame:
    """Return the kernels of the gradients of single time steps of the sequence.

    Empty if there are fewer such gradients than cells.
    """
    nodes = operators(context, rf"^autograd::engine::evaluate_function: {SLICED}")
    if nodes.count < cells / 2:
        return context.work.iloc[:0]
    return context.work.iloc[np.sort(context.launches.during(np.array(nodes.ids, np.int64)))]


def _edits_of_other_work(context: RuleContext, cells: pd.DataFrame, cell_passes: Passes) -> list[Edit]:
    """Return the edits that run the loop's other work once for all time steps, not once per time step."""
    edits: list[Edit] = []
    own_ids = set(cell_passes.both["gpu_op_id"].tolist())
    for step, part in cells.groupby("step"):
        calls = part["id"].to_numpy(np.int64)
        loop = passes(context, context.launches.begun_between(calls).tolist())
        for rows in (loop.forward, loop.backward):
            rows = rows[~rows["gpu_op_id"].isin(own_ids) & (rows["step"] == step)]
            for _, of_operator in rows.groupby("operator", dropna=False):
                edits += at_once(of_operator, len(of_operator)) if len(of_operator) >= FEWEST else []
    return edits


def _edits(context: RuleContext, cell_passes: Passes, sliced: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    kept_ids: list[int] = []
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    batches: set[float] = set()  # Rows of the forward products.
    for rows in (cell_passes.forward, cell_passes.backward):
        products = rows[rows["category"] == "gemm"]
        for _, part in products.groupby(["step", "flop_signature_id", "flop_operator"]):
            first = part.iloc[0]
            recorded = product_dtype(first)
            fast, slow = (
                product_work(first.flop_operator, first.flop_dims, first.flop_strides, dtype)
                for dtype in (recorded if recorded in HALF_BITS else CUDNN, "fp32")
            )
            if fast is None or slow is None:
                continue
            batches |= {fast.products[0].m} if rows is cell_passes.forward else set()
            works = (fast, slow if recorded == "fp32" else fast)
            _time_products(part, works, batches, gpu, kept_ids, edges)
    cell = cell_passes.both[cell_passes.both["category"] == "rnn"]
    stay = {*kept_ids, *cell["gpu_op_id"].tolist()}
    removed = [op for op in dict.fromkeys([*cell_passes.both["gpu_op_id"], *sliced["gpu_op_id"]]) if op not in stay]
    calls = calls_of(context, sorted(stay))
    at_once = [WithoutHostCause(cause, calls=calls) for cause in OPERATORS]
    return [
        TimedOps(tuple(kept_ids), *(tuple(each) for each in edges.values())),
        *at_once,
        FasterHost(1.0, calls, low=IN_ONE_LAUNCH),
        *without_freeing(context, removed),
        WithoutOps(tuple(removed)),
    ]


def _time_products(
    part: pd.DataFrame,
    works: tuple[KernelWork, KernelWork],
    batches: set[float],
    gpu: GpuPeaks,
    kept_ids: list[int],
    edges: dict[str, list[int]],
) -> None:
    """Add the remaining kernels of one step's products of one shape, with their new times.

    Half of the products stay separate, the others become one product. ``works`` is the work of one product as cuDNN does it by
    default, and if it may not use TF32.
    """
    work, slow = works
    calls = part.sort_values("start_ns").drop_duplicates("flop_op_id")
    product = work.products[0]
    # The product sums over the batch, so it is the gradient of a weight.
    of_weights = product.m not in batches and product.k in batches
    alone = calls.iloc[:0] if of_weights else calls.iloc[1::2]
    together = calls.drop(alone.index)
    recorded = part.groupby("flop_op_id")["dur_ns"].sum()
    each = _widened_to(estimate(work, gpu), estimate(slow, gpu))
    whole = _widened_to(*(estimate(_batched_work(either, len(together), of_weights), gpu) for either in (work, slow)))
    for rows, time, calls_in_one in ((alone, each, 1), (together.iloc[:1], whole, len(together))):
        for row in rows.itertuples():
            _keep(row, time, int(recorded[row.flop_op_id]) * calls_in_one, kept_ids, edges)


def _widened_to(likely_time: KernelTimeEstimate | None, slow: KernelTimeEstimate | None) -> KernelTimeEstimate | None:
    """Return ``likely_time`` with its interval extended to that of ``slow``; None if either is unknown."""
    return replace(likely_time, high=max(likely_time.high, slow.high)) if likely_time is not None and slow is not None else None


def _keep(
    row: Any, time: KernelTimeEstimate | None, recorded_ns: int, kept_ids: list[int], edges: dict[str, list[int]]
) -> None:
    kept_ids.append(int(row.gpu_op_id))
    for edge, durations in edges.items():
        durations.append(max(min(round(getattr(time, edge) * 1e6), recorded_ns), 1) if time is not None else recorded_ns)


def _batched_work(work: KernelWork, times: int, of_weights: bool) -> KernelWork:
    product = work.products[0]
    longer = replace(product, k=product.k * times) if of_weights else replace(product, m=product.m * times)
    return replace(work, products=(longer,), bytes=work.bytes * times)


def _gains_as_much(_context: RuleContext, cells: Finding, products: Finding) -> bool:
    """Return whether the cells are a large part of what autocast would shorten."""
    return cells.severity != "info" and cells.gain_ms >= AS_MUCH * products.gain_ms


RULE = Rule(
    "recurrent-cells",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
    explains=Explains(("launch_bound",), called="recurrent cells called one by one", sets=("recurrent",)),
    requires=("steps", "shapes", "gpu"),
    threshold=OTHER_CODE,
    comes_before=(
        Relation(
            "fp32-products",
            "“{title}” comes first: it keeps FP32, and after this change the host would launch the loop too slowly.",
            _gains_as_much,
        ),
    ),
)
