"""How a run was set up, as its recording shows it: the choices that people change between two runs.

A choice that a recording does not show has no trait: two runs differ in what both show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.knowledge.owners import HOST_LOADING, OUTSIDE_PROFILE
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.settings import settings_of
from sawtooth.analysis.store.library import Recording

NO_CHOICE = ("after", "step", "steps_per_epoch")  # what names a run or a part of one
TF32_SHARE = 0.01  # of the time of FP32 products: less is a kernel whose name deceives
OFTEN = 0.75  # of the steps copy to the host: a loss that is read now and then is no habit of the loop
COMPUTE = ("tensor_core_compute", "other_compute")
IN_WORKERS, INLINE = "in worker processes", "in the training process"
LAUNCHES = ("launch_bound", "python_host", "launch_latency")


@dataclass(frozen=True)
class Trait:
    """One choice: ``what`` it is about and its ``value``, in words.

    Rules whose advice changes it name ``key``, or ``key`` and ``value`` (``Explains.sets``). ``explains`` are owners and causes of a step's time that
    the choice acts on. A value with a number has a ``kind``, the value without it, and the ``amount``.
    """

    key: str
    what: str
    value: str
    explains: tuple[str, ...] = ()
    kind: str = ""
    amount: float | None = None

    def differs_from(self, other: Trait) -> bool:
        """Whether the choice is another one: of another ``kind``, or by half of one and more where both know the amount."""
        if (self.kind or self.value) != (other.kind or other.value):
            return True
        return self.amount is not None and other.amount is not None and abs(self.amount - other.amount) >= 0.5

    def made_by(self, finding: Finding) -> bool:
        """Whether the choice is what ``finding`` advises."""
        return not {self.key, f"{self.key} {self.value}"}.isdisjoint(finding.explains.sets)


@dataclass(frozen=True)
class _Choice:
    """``values`` are tried in order: a value, and the regular expression of the names that show it. ``otherwise`` stands where none is there,
    but a name of ``needs`` is; "" for both: any trace with GPU work."""

    key: str
    what: str
    values: tuple[tuple[str, str], ...]
    otherwise: str | None = None
    needs: str = ""
    explains: tuple[str, ...] = ()


_CHOICES = (
    _Choice("loader", "Batches are loaded", ((IN_WORKERS, "_MultiProcessingDataLoaderIter"), (INLINE, "_SingleProcessDataLoaderIter")),
            explains=("data_wait", HOST_LOADING, OUTSIDE_PROFILE)),
    _Choice("compile", "torch.compile", (("on", "Torch-Compiled Region|^triton_(poi|per|red)_"),), "off",
            explains=("other_compute", *LAUNCHES, "compilation")),
    _Choice("graph", "CUDA graphs", (("on", "(cuda|cu|hip)GraphLaunch"),), "off", explains=LAUNCHES),
    _Choice("optimizer", "Optimizer", (("fused", r"_fused_(adam|adamw|sgd|adagrad)_?$|FusedAdam"),
            ("foreach", r"_foreach_(addcdiv|addcmul|sqrt|lerp)|multi_tensor_(adam|sgd)"), ("one tensor at a time", r"^aten::(addcdiv_|lerp_)$")),
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
_NARROW = (("Float8", "fp8"), ("BFloat16", "bf16"), ("Half", "fp16"), ("double", "fp64"))


@dataclass(frozen=True)
class ReadBack:
    """Copies to the host: how many a step on average, and ``steps_with`` any among ``steps``."""

    a_step: float
    steps_with: int
    steps: int

    @property
    def often(self) -> bool:
        """Whether they are a habit of the loop, rather than of a step now and then."""
        return self.steps_with >= OFTEN * self.steps

    def __str__(self) -> str:
        if self.often:
            return f"{self.a_step:,.0f} a step" if self.a_step >= 1 else "in most steps"
        return f"in {self.steps_with} of {self.steps} steps" if self.steps_with else "none"


def traits_of(run: RunResult, recording: Recording | None, read_back: ReadBack | None = None) -> tuple[Trait, ...]:
    """Return what ``recording``, the run's trace (None: it has none), and its manifest show of how the run was set up.

    ``read_back`` are the copies to the host, None where no step is recorded.
    """
    reads = [_reads(read_back)] if read_back is not None else []
    return (*reads, *(_of_trace(recording, run) if recording is not None else _loader_alone(run)), *_of_manifest(run))


def _reads(read_back: ReadBack) -> Trait:
    return Trait(
        "reads",
        "GPU values copied to the host",
        str(read_back),
        ("host_sync", "blocking_copy"),
        kind="in every step" if read_back.often else "now and then, or never",
        amount=read_back.a_step if read_back.often else None,
    )


def _of_trace(recording: Recording, run: RunResult) -> Iterator[Trait]:
    workers = run.manifest.facts.loader_workers
    for choice in _CHOICES:
        value = _value(choice, recording, run)
        if choice.key == "loader" and workers:
            yield _in_workers(choice, workers)
        elif value is not None:
            yield Trait(choice.key, choice.what, value, choice.explains)
    if run.lead is not None and (dtype := _dtype(recording, run.lead.device)):
        yield Trait("dtype", "Products are computed in", dtype, COMPUTE)


def _loader_alone(run: RunResult) -> Iterator[Trait]:
    """Yield how batches are loaded, of a run without a trace, where the recorder noted it."""
    loader, workers = _CHOICES[0], run.manifest.facts.loader_workers
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
    for name, text in settings_of(run.manifest).items():
        if name not in NO_CHOICE:
            yield Trait(f"setting {name}", name, text)


def _in_workers(loader: _Choice, count: float) -> Trait:
    value = f"in {count:g} worker process{'' if count == 1 else 'es'}"
    return Trait(loader.key, loader.what, value, loader.explains, kind=IN_WORKERS, amount=count)


def _value(choice: _Choice, recording: Recording, run: RunResult) -> str | None:
    for value, pattern in choice.values:
        if recording.named(pattern):
            return value
    if choice.otherwise is None or run.lead is None:
        return None
    return choice.otherwise if not choice.needs or recording.named(choice.needs) else None


def _dtype(recording: Recording, device: int) -> str | None:
    """Return the dtype that most of the products' time is spent in; None where shapes are not recorded.

    FP32 inputs are TF32 where any of their products run on tensor cores: which do is the library's choice, that some may is the program's.
    """
    times: dict[str, int] = {}
    on_tensor_cores = 0
    for types, category, tensor_cores, ns in recording.rows(_DTYPES, [device]):
        dtype = next((name for text, name in _NARROW if text in types), "FP32")
        times[dtype] = times.get(dtype, 0) + ns
        on_tensor_cores += ns if dtype == "FP32" and category != "attention" and tensor_cores in ("yes", "likely") else 0
    if not times:
        return None
    most = max(times, key=lambda name: times[name])
    return "TF32" if most == "FP32" and on_tensor_cores > TF32_SHARE * times["FP32"] else most
