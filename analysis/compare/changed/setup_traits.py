"""Traits of how a run was set up, as its recording shows them.

They are choices that people change between runs. A choice that a recording does not show has no trait. Two runs can differ only in
traits that both have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.compare.changed.gradient_sync import gradient_sync
from sawtooth.analysis.knowledge.owners import HOST_LOADING, OUTSIDE_PROFILE
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.store.library import Recording

WORKERS = ("workers", "num_workers", "loader_workers")  # Settings with the number of loader workers.
NO_CHOICE = ("after", "step", "steps_per_epoch")  # Settings that name a run or a part of a run.
# Products count as TF32 above this share of their FP32 time on tensor cores. Smaller shares occur without TF32, because the
# names of some kernels wrongly suggest tensor cores.
TF32_SHARE = 0.01
# Share of steps that copy values to the host. A loop that reads its loss only now and then is below this share.
FREQUENT_COPY_SHARE = 0.75
COMPUTE = ("tensor_core_compute", "other_compute")
IN_WORKERS, INLINE = "in worker processes", "in the training process"
LAUNCHES = ("launch_bound", "python_host", "launch_latency")
COMMUNICATION = ("exposed_comm", "comm_wait", "comm_transfer")


@dataclass(frozen=True)
class Trait:
    """One choice: its subject ``what``, and its ``value`` in words.

    A rule whose advice changes this choice names ``key``, or ``key`` and ``value``, in ``Explains.sets``. ``explains`` are the
    owners and causes of step time that the choice acts on. A value with a number also has the ``amount`` and a ``kind``, which
    is the value without the number. ``counted`` names the amount, such as "Loader workers".
    """

    key: str
    what: str
    value: str
    explains: tuple[str, ...] = ()
    kind: str = ""
    amount: float | None = None
    counted: str = ""

    def differs_from(self, other: Trait) -> bool:
        """Whether the choice is different: another ``kind``, or an amount that differs by 0.5 or more.

        Amounts are compared only if both are known.
        """
        if (self.kind or self.value) != (other.kind or other.value):
            return True
        return self.amount is not None and other.amount is not None and abs(self.amount - other.amount) >= 0.5

    def compared_values(self, other: Trait) -> tuple[str, str, str]:
        """Return the subject, the other value and this value.

        If both have a counted amount, return only the amounts.
        """
        if self.counted and self.amount is not None and other.amount is not None:
            return self.counted, f"{other.amount:g}", f"{self.amount:g}"
        return self.what, other.value, self.value

    def is_advised_by(self, finding: Finding) -> bool:
        """Whether ``finding`` advises this choice."""
        return not {self.key, f"{self.key} {self.value}"}.isdisjoint(finding.explains.sets)


@dataclass(frozen=True)
class _Choice:
    """How to recognize one choice by the names in a trace.

    ``values`` are tried in order: a value, and the regular expression of the names that show it. ``otherwise`` is the value of
    a trace with GPU work if no expression matches.
    """

    key: str
    what: str
    values: tuple[tuple[str, str], ...]
    otherwise: str | None = None
    explains: tuple[str, ...] = ()


_CHOICES = (
    _Choice("loader", "Batches are loaded", ((IN_WORKERS, "_MultiProcessingDataLoaderIter"), (INLINE, "_SingleProcessDataLoaderIter")),
            explains=("data_wait", HOST_LOADING, OUTSIDE_PROFILE)),
    _Choice("compile", "torch.compile", (("on", "Torch-Compiled Region|^triton_(poi|per|red)_"),), "off",
            explains=("other_compute", *LAUNCHES, "compilation")),
    _Choice("graph", "CUDA graphs", (("on", "(cuda|cu|hip)GraphLaunch"),), "off", explains=LAUNCHES),
    # A recurrent layer may also make cuDNN use TF32, so a changed layer is listed before the changed dtype.
    _Choice("recurrent", "Recurrent layers", (("nn.LSTM", "^aten::lstm$"), ("nn.GRU", "^aten::gru$"), ("nn.RNN", "^aten::rnn_(tanh|relu)$"),
            ("one LSTMCell per time step", r"^aten::(lstm_cell|_thnn_fused_lstm_cell)$"),
            ("one GRUCell per time step", r"^aten::(gru_cell|_thnn_fused_gru_cell)$"), ("one RNNCell per time step", r"^aten::rnn_(tanh|relu)_cell$")),
            "none", explains=(*COMPUTE, *LAUNCHES, "host_compute")),
    # The kernels' names count too: a CUDA graph and an Nsight export have no operators.
    _Choice("optimizer", "Optimizer", (("fused", r"_fused_(adam|adamw|sgd|adagrad)_?$|Fused(Adam|Sgd|Adagrad)"),
            ("foreach", r"_foreach_(addcdiv|addcmul|sqrt|lerp)|multi_tensor_(adam|sgd)|multi_tensor_apply_kernel<.*PointwiseOp"),
            ("one tensor at a time", r"^aten::(addcdiv_|lerp_)$|::addcdiv_cuda_kernel")),
            explains=("other_compute", *LAUNCHES)),
    _Choice("layout", "Memory layout of convolutions", (("channels first", "(?i)nchwToNhwc"), ("channels_last", "nhwc")),
            explains=COMPUTE),
    _Choice("attention", "Attention", (("fused", "_(flash|efficient|cudnn|fused)_attention|flash_(fwd|bwd)|fmha"), ("as separate operators", "^aten::_softmax$")),
            explains=COMPUTE),
    _Choice("host_memory", "Batches are copied from", (("pageable memory", "HtoD \\(Pageable"), ("pinned memory", "HtoD \\(Pinned")),
            explains=("blocking_copy", "exposed_memcpy")),
)  # fmt: skip
_DTYPES = """SELECT s.input_types, w.category, w.tensor_cores, sum(w.ns)::BIGINT AS ns FROM flop_work w JOIN signatures s USING (signature_id)
    WHERE w.device = ? AND w.category IN ('gemm', 'conv', 'attention') AND s.input_types IS NOT NULL GROUP BY ALL ORDER BY ns DESC"""
_OTHER_DTYPES = (("Float8", "fp8"), ("BFloat16", "bf16"), ("Half", "fp16"), ("double", "fp64"))


@dataclass(frozen=True)
class ReadBack:
    """Copies to the host: their mean number per step, and how many of the ``steps`` have any."""

    per_step: float
    steps_with: int
    steps: int

    @property
    def often(self) -> bool:
        """Whether the loop copies in most steps, not only now and then."""
        return self.steps_with >= FREQUENT_COPY_SHARE * self.steps

    def __str__(self) -> str:
        if self.often:
            return f"{self.per_step:,.0f} per step" if self.per_step >= 1 else "in most steps"
        return f"in {self.steps_with} of {self.steps} steps" if self.steps_with else "none"


def traits_of(run: RunResult, recording: Recording | None, read_back: ReadBack | None = None) -> tuple[Trait, ...]:
    """Return the choices in the run's set-up that its trace and its manifest show.

    ``recording`` is the trace, or None without one. ``read_back`` are the copies to the host, or None if no step is recorded.
    """
    reads = [_reads(read_back)] if read_back is not None else []
    return (*reads, *(_of_trace(recording, run) if recording is not None else _loader_of_recorder(run)), *_of_manifest(run))


def _reads(read_back: ReadBack) -> Trait:
    return Trait(
        "reads",
        "Reads of GPU values",
        str(read_back),
        ("host_sync", "blocking_copy"),
        kind="in most steps" if read_back.often else "now and then, or never",
        amount=read_back.per_step if read_back.often else None,
    )


def _of_trace(recording: Recording, run: RunResult) -> Iterator[Trait]:
    workers = _workers(run)
    for choice in _CHOICES:
        value = _value(choice, recording, run)
        if choice.key == "loader" and workers:
            yield _in_workers(choice, workers)
        elif value is not None:
            yield Trait(choice.key, choice.what, value, choice.explains)
    if run.lead is not None and (dtype := _dtype(recording, run.lead.device)):
        yield Trait("dtype", "Compute dtype", dtype, COMPUTE)
    if run.lead is not None and (reduced := gradient_sync(recording, run.lead)):
        yield Trait("gradient_sync", "Gradients are reduced", reduced, (*COMMUNICATION, *LAUNCHES))
    if run.communication is not None and (schedule := run.communication.schedule) is not None:
        micro = schedule.microbatches
        yield Trait("micro_batches", "Micro-batches of the pipeline", f"{micro:,}", COMMUNICATION, amount=micro)
        if schedule.schedule is not None:
            yield Trait("schedule", "Schedule of the pipeline", schedule.schedule, COMMUNICATION)


def _loader_of_recorder(run: RunResult) -> Iterator[Trait]:
    """Yield how batches are loaded, for a run without a trace, if the recorder noted it."""
    loader, workers = _CHOICES[0], _workers(run)
    if workers is not None:
        yield _in_workers(loader, workers) if workers else Trait(loader.key, loader.what, INLINE, loader.explains)


def _of_manifest(run: RunResult) -> Iterator[Trait]:
    facts = run.manifest.facts
    if run.gpus:
        yield Trait("gpus", "GPUs", f"{run.gpus:,}")
    for key, what, amount in (
        ("samples", "Samples in a step", facts.samples_per_step),
        ("tokens", "Tokens in a step", facts.tokens_per_step),
    ):
        if amount is not None:
            yield Trait(key, what, f"{amount:,.12g}")
    for name, text in run.manifest.all_settings.items():
        if name not in NO_CHOICE and not (name in WORKERS and _workers(run) is not None):
            yield Trait(f"setting {name}", name, text)


def _workers(run: RunResult) -> float | None:
    """Return the recorded number of loader workers, else the user's setting; None if neither is known."""
    settings = run.manifest.all_settings
    entered = next((settings[name] for name in WORKERS if settings.get(name, "").isdecimal()), None)
    recorded = run.manifest.facts.loader_workers
    return recorded if recorded is not None else float(entered) if entered is not None else None


def _in_workers(loader: _Choice, count: float) -> Trait:
    value = f"in {count:g} worker process{'' if count == 1 else 'es'}"
    return Trait(loader.key, loader.what, value, loader.explains, kind=IN_WORKERS, amount=count, counted="Loader workers")


def _value(choice: _Choice, recording: Recording, run: RunResult) -> str | None:
    for value, pattern in choice.values:
        if recording.named(pattern):
            return value
    return choice.otherwise if run.lead is not None else None


def _dtype(recording: Recording, device: int) -> str | None:
    """Return the dtype with the most time in matrix products; None if shapes are not recorded.

    FP32 inputs count as TF32 if more than TF32_SHARE of their time is on tensor cores. Even where the program allows TF32, the
    library uses it only for some products.
    """
    times: dict[str, int] = {}
    on_tensor_cores = 0
    for types, category, tensor_cores, ns in recording.rows(_DTYPES, [device]):
        dtype = next((name for text, name in _OTHER_DTYPES if text in types), "FP32")
        times[dtype] = times.get(dtype, 0) + ns
        on_tensor_cores += ns if dtype == "FP32" and category != "attention" and tensor_cores in ("yes", "likely") else 0
    if not times:
        return None
    longest = max(times, key=lambda name: times[name])
    return "TF32" if longest == "FP32" and on_tensor_cores > TF32_SHARE * times["FP32"] else longest
