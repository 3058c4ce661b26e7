"""A recurrent network calls its cell once for every time step.

What it checks
    Calls of ``LSTMCell``, ``GRUCell`` or ``RNNCell`` in each step (``aten::lstm_cell`` and similar operators), and their
    backward passes.
Why it costs time
    Each call multiplies a few rows with the whole weight, and its backward pass adds a gradient of the whole weight. Only the
    product with the hidden state must wait for the previous time step. The inputs of all time steps need one product, and the
    gradient of each weight needs one product.
What to do
    Use ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` over the whole sequence. cuDNN then computes these products at once.
When it is wrong
    The next input depends on the last output (decoding), so the loop must stay. Then compile the loop. There is no finding if
    attention or messages between nodes lie between the calls, or if the batch size changes every few calls. Such calls are not
    time steps of one sequence.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import without_freeing
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import HALF_BITS
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import RECURRENT_CELLS, launching_calls, operators, recorded_arguments
from sawtooth.analysis.findings.queries.passes import Passes, merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, KernelWork, estimate
from sawtooth.analysis.knowledge.kernel_work import product_work
from sawtooth.analysis.replay.edits import Edit, FasterHost, TimedOps, WithoutHostCause, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

MIN_CELLS = 8  # Per step. Fewer are the first steps of a decoder, not a sequence.
CUDNN_DTYPE = "tf32"  # cuDNN multiplies FP32 in this dtype by default (torch.backends.cudnn.allow_tf32).
# Causes of host time before each launch of a loop. Inside one call of cuDNN, this time disappears.
HOST_CAUSES_BEFORE_LAUNCH = ("launch_bound", "python_host")
# Host time of a kernel inside a call of cuDNN, as shares of the recorded launch. On the host of an H200 (PyTorch 2.11, profiled, 16,000
# kernels per step), it was 2.4 times the time of cuDNN's own launch calls, and 1.4 times that of the other launch calls.
CUDNN_LAUNCH, MIN_CUDNN_LAUNCH, MAX_CUDNN_LAUNCH = 1.5, 1.1, 2.3
ONE_LAUNCH = 0.05  # The same if cuDNN runs all time steps of a layer in one kernel.
# Largest hidden sizes of layers in FP32 that PyTorch runs in one kernel, forward and backward (aten/src/ATen/native/cudnn/RNN.cpp).
# Up to 1.5 times these sizes, it does so only in the forward pass.
MAX_ONE_KERNEL_SIZE = {"LSTM": 128, "GRU": 128, "RNN": 256}
# Position of the hidden state's weight among the arguments of a cell. Its shape is gates × size, size.
WEIGHT_ARGUMENT = 3
# Operators of attention and of messages between nodes. After these, the next input is not known in advance.
MIXING_OPERATORS = r"^aten::(index_add_?|scatter_(add|reduce)_?|_?softmax|bmm)$"
# The backward pass of x[:, t]. For each time step, it makes a tensor of zeros as large as x.
SLICE_BACKWARD = "SelectBackward"
MIN_AUTOCAST_SHARE = 0.5  # Share of the gain of autocast. With a smaller gain, most products are outside of the loop.
TF32_NOTE = " The products run in TF32, cuDNN's default for FP32. The upper end of the interval is without TF32."
DROPOUT_RISK = "cuDNN's recurrent networks have their own dropout between layers."
TF32_RISK = " They use TF32 unless torch.backends.cudnn.allow_tf32 is off."

CHANGES = (
    CodeChange(
        "PyTorch",
        "for t in range(x.size(1)):\n    h, c = self.cell(x[:, t], (h, c))\n    outputs.append(h)",
        "self.lstm = nn.LSTM(width, hidden, batch_first=True)   # in __init__; old checkpoints: weight_ih is weight_ih_l0\noutputs, _ = self.lstm(x)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if recurrent cells called one by one take a relevant share of the step."""
    gpu, cells = context.rank.gpu, operators(context, RECURRENT_CELLS)
    if gpu is None or cells.count_per_step < MIN_CELLS or not _are_time_steps(context, cells.frame):
        return
    cell_passes = passes(context, cells.ids)
    slice_gradients = _slice_gradients(context, cells.count_per_step)
    cost_ms = ms_per_step(cell_passes.both_passes, context.work_steps) + ms_per_step(slice_gradients, context.work_steps)
    if context.is_negligible(cost_ms):
        return
    name = str(cells.frame["name"].iloc[0]).removeprefix("aten::").removesuffix("_cell").split("_")[0].upper()
    products = cell_passes.both_passes[cell_passes.both_passes["category"] == "gemm"].drop_duplicates("launch_kind")
    dtypes = {product_dtype(row) for row in products.itertuples()} - {None}
    in_half = bool(dtypes) and dtypes <= set(HALF_BITS)
    host_shares = _host_shares(name, _hidden_size(context, cells.ids[:1]), dtypes)
    other_edits = _edits_of_other_work(context, cells.frame, cell_passes)
    yield Evidence(
        Advice(
            f"{name} cells are called one by one, {cells.count_per_step:.0f} per step: {in_words(cost_ms)} of each step, forward and backward",
            Action(
                "Use",
                f"nn.{name} over the whole sequence",
                ". The inputs of all time steps then need one product, and so does each weight's gradient.",
            ),
            note="Predicted with one product for all inputs, one for each weight gradient, and one per time step in a single call. Gradients are not "
            f"summed.{'' if in_half else TF32_NOTE}",
            risk=DROPOUT_RISK if in_half else DROPOUT_RISK + TF32_RISK,
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[*_edits(context, cell_passes, slice_gradients, gpu, host_shares), *other_edits],
        rows=evidence_of(cell_passes.both_passes, context.work_steps, ("operator",)),
    )


def _are_time_steps(context: RuleContext, cells: pd.DataFrame) -> bool:
    """Return whether the calls can be time steps of sequences whose inputs are all known in advance.

    ``cells`` is the frame of ``operators``. From one time step to the next, the batch stays the same or shrinks, because short
    sequences end. Consecutive calls for graphs or sentences of different sizes are not a sequence.
    """
    rows = context.recording.rows(
        "SELECT s.input_dims->>'$[0][0]' FROM cpu_ops o JOIN signatures s USING (signature_id) WHERE o.cpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY o.start_ns",
        [cells["id"].tolist()],
    )
    batch_changes = np.diff(np.array([size for (size,) in rows if size is not None], np.int64))
    calls_per_sequence = len(cells) / (np.count_nonzero(batch_changes) + 1)
    if (batch_changes > 0).any() and calls_per_sequence < MIN_CELLS:
        return False
    mixing_ns = np.sort(operators(context, MIXING_OPERATORS).frame["start_ns"].to_numpy(np.int64))
    mixing_between = np.diff(np.searchsorted(mixing_ns, np.sort(cells["start_ns"].to_numpy(np.int64))))
    return bool(np.count_nonzero(mixing_between) < len(mixing_between) / 2)


def _slice_gradients(context: RuleContext, cells: float) -> pd.DataFrame:
    """Return the kernels of the gradients of single time steps of the sequence.

    Empty if there are fewer such gradients than cells.
    """
    nodes = operators(context, rf"^autograd::engine::evaluate_function: {SLICE_BACKWARD}")
    if nodes.count_per_step < cells / 2:
        return context.work.iloc[:0]
    return context.work.iloc[np.sort(context.launches.launched_during(np.array(nodes.ids, np.int64)))]


def _edits_of_other_work(context: RuleContext, cells: pd.DataFrame, cell_passes: Passes) -> list[Edit]:
    """Return the edits that run the loop's other operators once for all time steps."""
    edits: list[Edit] = []
    own_ids = set(cell_passes.both_passes["gpu_op_id"].tolist())
    for step, part in cells.groupby("step"):
        calls = part["id"].to_numpy(np.int64)
        loop = passes(context, context.launches.operators_begun_between(calls).tolist())
        for one_pass in (loop.forward, loop.backward):
            other_rows = one_pass[~one_pass["gpu_op_id"].isin(own_ids) & (one_pass["step"] == step)]
            for _, rows in other_rows.groupby("operator", dropna=False):
                edits += merged_body_edits(rows, len(rows)) if len(rows) >= MIN_CELLS else []
    return edits


def _hidden_size(context: RuleContext, cells: Sequence[int]) -> int | None:
    """Return the size of a cell's hidden state, None if the trace does not have it."""
    for shapes, _ in recorded_arguments(context, cells).values():
        weight = shapes[WEIGHT_ARGUMENT] if len(shapes) > WEIGHT_ARGUMENT else None
        if weight and isinstance(weight[-1], int):
            return weight[-1]
    return None


def _host_shares(name: str, hidden_size: int | None, dtypes: set[str | None]) -> tuple[float, float, float]:
    """Return the host's time for a kernel that stays, as shares of its launch: likely, least and most.

    ``dtypes`` are those of the products of the cells called ``name``.
    """
    if dtypes == {"bf16"}:  # cuDNN has no single kernel for it.
        return CUDNN_LAUNCH, MIN_CUDNN_LAUNCH, MAX_CUDNN_LAUNCH
    max_size = MAX_ONE_KERNEL_SIZE[name]
    if "fp16" in dtypes or hidden_size is None or max_size < hidden_size <= 1.5 * max_size:
        return CUDNN_LAUNCH, ONE_LAUNCH, MAX_CUDNN_LAUNCH
    if hidden_size <= max_size:
        return ONE_LAUNCH, ONE_LAUNCH, MIN_CUDNN_LAUNCH
    return CUDNN_LAUNCH, MIN_CUDNN_LAUNCH, MAX_CUDNN_LAUNCH


def _edits(
    context: RuleContext,
    cell_passes: Passes,
    slice_gradients: pd.DataFrame,
    gpu: GpuPeaks,
    host_shares: tuple[float, float, float],
) -> list[Edit]:
    """Return the edits that run the cells as one recurrent layer of cuDNN."""
    likely_share, least_share, largest_share = host_shares
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
                for dtype in (recorded if recorded in HALF_BITS else CUDNN_DTYPE, "fp32")
            )
            if fast is None or slow is None:
                continue
            batches |= {fast.products[0].m} if rows is cell_passes.forward else set()
            works = (fast, slow if recorded == "fp32" else fast)
            _time_products(part, works, batches, gpu, kept_ids, edges)
    cell = cell_passes.both_passes[cell_passes.both_passes["category"] == "rnn"]
    stay = {*kept_ids, *cell["gpu_op_id"].tolist()}
    removed = [
        op for op in dict.fromkeys([*cell_passes.both_passes["gpu_op_id"], *slice_gradients["gpu_op_id"]]) if op not in stay
    ]
    calls = launching_calls(context, sorted(stay))
    return [
        TimedOps(tuple(kept_ids), *(tuple(durations) for durations in edges.values())),
        *(WithoutHostCause(cause, calls=calls) for cause in HOST_CAUSES_BEFORE_LAUNCH),
        FasterHost(likely_share, calls, low=least_share, high=largest_share),
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
    """Add the remaining kernels of one step's products of one shape, and their new times.

    The ids go to ``kept_ids``, the times to ``edges``. Half of the products stay separate, the others become one product. Gradients of a weight all become one product. ``works`` is
    the work of one product in cuDNN's default dtype, and without TF32.
    """
    work, slow_work = works
    calls = part.sort_values("start_ns").drop_duplicates("flop_op_id")
    product = work.products[0]
    is_weight_gradient = product.m not in batches and product.k in batches  # Such a product sums over the batch.
    separate = calls.iloc[:0] if is_weight_gradient else calls.iloc[1::2]
    joined = calls.drop(separate.index)
    recorded_ns = part.groupby("flop_op_id")["dur_ns"].sum()
    separate_time = _widened_to(estimate(work, gpu), estimate(slow_work, gpu))
    joined_works = (_batched_work(product_work, len(joined), is_weight_gradient) for product_work in (work, slow_work))
    joined_time = _widened_to(*(estimate(joined_work, gpu) for joined_work in joined_works))
    for rows, time, calls_in_one in ((separate, separate_time, 1), (joined.iloc[:1], joined_time, len(joined))):
        for row in rows.itertuples():
            _keep(row, time, int(recorded_ns[row.flop_op_id]) * calls_in_one, kept_ids, edges)


def _widened_to(likely_time: KernelTimeEstimate | None, slow: KernelTimeEstimate | None) -> KernelTimeEstimate | None:
    """Return ``likely_time`` with its interval extended to that of ``slow``; None if either is unknown."""
    return replace(likely_time, high=max(likely_time.high, slow.high)) if likely_time is not None and slow is not None else None


def _keep(
    row: Any, time: KernelTimeEstimate | None, recorded_ns: int, kept_ids: list[int], edges: dict[str, list[int]]
) -> None:
    """Add a kernel with its new ``time``, at most ``recorded_ns``."""
    kept_ids.append(int(row.gpu_op_id))
    for edge, durations in edges.items():
        durations.append(max(min(round(getattr(time, edge) * 1e6), recorded_ns), 1) if time is not None else recorded_ns)


def _batched_work(work: KernelWork, times: int, is_weight_gradient: bool) -> KernelWork:
    """Return the work of one product in place of ``times`` products."""
    product = work.products[0]
    longer = replace(product, k=product.k * times) if is_weight_gradient else replace(product, m=product.m * times)
    return replace(work, products=(longer,), bytes=work.bytes * times)


def _gains_as_much(_context: RuleContext, cells: Finding, products: Finding) -> bool:
    """Return whether the cells are a large part of what autocast would shorten."""
    return cells.severity != "info" and cells.gain_ms >= MIN_AUTOCAST_SHARE * products.gain_ms


RULE = Rule(
    "recurrent-cells",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(("launch_bound",), called="recurrent cells called one by one", sets=("recurrent",)),
    requires=("steps", "shapes", "gpu"),
    threshold=OTHER_CODE,
    comes_before=(
        Relation(
            "fp32-products",
            "“{title}” comes first, because it keeps FP32, and after this change the host would launch the loop too slowly.",
            _gains_as_much,
        ),
    ),
)
