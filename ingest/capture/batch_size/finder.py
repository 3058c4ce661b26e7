"""Find the largest batch size that fits in memory, and time each size, inside the training process.

    from sawtooth.capture import find_batch_size

    sizes = find_batch_size(train_step, batch, changes=[model, optimizer], path="batches.sawtooth")
    loader = DataLoader(dataset, batch_size=sizes.advised)

``train_step(batch)`` is one whole step: forward, backward, optimizer. ``batch`` is an example batch, or a function that makes a batch
of a given size. An example has its samples along dimension 0; they are repeated or cut for other sizes. ``changes`` are the objects that a
step changes: models, optimizers, gradient scalers, schedulers, generators. These objects and the random state are restored afterwards,
even after an out-of-memory error. Graphs of ``torch.compile`` are discarded. Times do not include data loading.

Functions get ``torch`` as an argument, because importing this module must not import PyTorch.
"""

from __future__ import annotations

import contextlib
import gc
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sawtooth.ingest.capture.batch_size.examples import resized, sample_count, tensors_of
from sawtooth.ingest.capture.batch_size.search import BatchSizes, BatchSizeTrial, search
from sawtooth.ingest.capture.batch_size.state import TrainingState
from sawtooth.ingest.capture.packing import pack_run
from sawtooth.ingest.capture.profiler import StepProfiler
from sawtooth.ingest.loop.batch_rule import LARGEST_BATCH_SHARE
from sawtooth.ingest.loop.numbers import significant

Trial = TypeVar("Trial")

WARMUP_STEPS = 2  # The first step loads kernels and chooses algorithms. By the second, the optimizer has allocated its state.
TIMINGS_PER_SIZE = 3  # Each size is timed this often. The median is the step time, and the spread is its uncertainty.
MAX_SIZE_FACTOR = 1024  # By default, the search stops at this multiple of the example's batch size.
MAX_STEPS = 500  # A timing has at most this many steps. More steps would not make the median more precise.
PROFILED_STEPS = 5
# Messages of plain RuntimeErrors that also mean that memory ran out.
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|(?:CUBLAS|CUDNN|CUSOLVER|NCCL)\w*ALLOC_FAILED", re.I)
# Messages about tensors too large for 32-bit indices. They limit the batch as memory does.
INDEX_OVERFLOW = re.compile(r"32.?bit index|canUse32BitIndexMath|INT_MAX", re.I)


def find_batch_size(
    train_step: Callable[[Any], Any],
    batch: Any,
    *,
    changes: Sequence[Any],
    path: str | Path | None = None,
    name: str = "",
    start: int | None = None,
    least: int | None = None,
    most: int | None = None,
    seconds: float = 1.0,
    at_most_s: float = 180.0,
    settings: Mapping[str, Any] | None = None,
) -> BatchSizes:
    """Try batch sizes from ``least`` to ``most`` or the largest that fits; print and return the result.

    The search starts at ``start``, by default the size of the example. ``least`` is by default a quarter of ``start``, but not below 2,
    because a batch norm needs two samples. Each size is timed for ``seconds``. No new size is begun after ``at_most_s`` seconds.

    With ``path``, the measured sizes and a trace are written into a ``.sawtooth`` file, from which other sizes are predicted. The trace
    has steps with ``start`` samples, or with the largest timed batch if ``start`` does not fit.

    Raises ValueError if ``start`` is unknown, or if no tensor of the example has ``start`` samples. Raises TypeError if an object in
    ``changes`` has no state. Errors of ``train_step`` are raised too, except out-of-memory errors.
    """
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise ValueError(
            "With several ranks, an out-of-memory error on one rank would block the others. Find the batch size on one GPU, without a "
            "process group."
        )
    example_size = start or (None if callable(batch) else sample_count(torch, batch))
    if not example_size:
        raise ValueError("batch is a function, or has no tensor with dimensions, so its size is unknown. Give start=…")
    if not callable(batch) and not any(tensor.dim() and tensor.shape[0] == example_size for tensor in tensors_of(torch, batch)):
        raise ValueError(
            f"No tensor of the example has {example_size:,} samples along its first dimension, so the example cannot be resized. "
            "Leave start out, or give a function that makes a batch of a size."
        )
    make_batch = batch if callable(batch) else lambda size: resized(torch, batch, example_size, size)
    runner = _TrialRunner(torch, train_step, make_batch, changes, seconds)
    deadline_s = time.monotonic() + at_most_s
    with runner:
        sizes = search(
            example_size,
            min_size=least or max(example_size // 4, min(example_size, 2)),
            max_size=most or MAX_SIZE_FACTOR * example_size,
            try_size=runner.timed,
            fits=runner.fits,
            has_time=lambda: time.monotonic() < deadline_s,
        )
        if path is not None and sizes.trials:
            _profile_and_pack(runner, sizes, example_size, _suffixed(Path(path)), name, settings or {})
    print("\n".join(report_lines(sizes)), file=sys.stderr)
    return sizes


def report_lines(sizes: BatchSizes) -> list[str]:
    """Return the table of trials and the recommended size, as they are printed."""
    timed = [trial for trial in sizes.trials if trial.step_ms]
    if not timed:
        return ["sawtooth: no batch fits into memory."]
    top = max(trial.batch for trial in timed)
    rows = [f"{'batch':>8}  {'step, ms':>9}  {'samples/s':>10}  {f'accumulated to {top:,}':>22}  {'peak, GB':>8}"]
    for trial in sizes.trials:
        if trial.step_ms is None:
            rows.append(f"{trial.batch:>8,}  out of memory")
            continue
        step = significant(trial.step_ms, 4)
        rate = significant(trial.samples_per_s or 0.0, 4)
        accumulated = significant(trial.accumulated_per_s(top) or 0.0, 4)
        memory = f"{trial.memory_bytes / 1e9:.3g}" if trial.memory_bytes is not None else ""
        rows.append(f"{trial.batch:>8,}  {step:>9}  {rate:>10}  {accumulated:>22}  {memory:>8}".rstrip())
    if sizes.too_large is None:
        return [*rows, f"sawtooth: a batch of {sizes.largest:,} fits. No larger batch was tried."]
    return [
        *rows,
        f"sawtooth: the largest batch that fits is {sizes.largest:,}. Use {sizes.advised:,} (about {100 * LARGEST_BATCH_SHARE:.0f} %), to leave memory "
        "for longer samples, fragmentation and evaluation.",
    ]


class _OutOfMemoryError(Exception):
    """A trial ran out of memory."""


class _TrialRunner:
    """Runs steps with batches of given sizes, and restores the training's state after each size."""

    def __init__(
        self,
        torch: Any,
        train_step: Callable[[Any], Any],
        make_batch: Callable[[int], Any],
        changes: Sequence[Any],
        seconds: float,
    ) -> None:
        self._torch, self._train_step, self._make_batch, self._seconds = torch, train_step, make_batch, seconds
        self._optimizers = [change for change in changes if isinstance(change, torch.optim.Optimizer)]
        self._state = TrainingState(torch, changes)

    def __enter__(self) -> _TrialRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._state.restore_random()

    def timed(self, size: int) -> BatchSizeTrial:
        """Time steps with a batch of ``size``; the trial has no times if the batch does not fit."""
        try:
            return self.attempt(lambda: self._measured(size))
        except _OutOfMemoryError:
            return BatchSizeTrial(size)

    def fits(self, size: int) -> bool:
        """Return whether a step with a batch of ``size`` runs."""
        try:
            self.attempt(lambda: self._steps(self._make_batch(size), WARMUP_STEPS))
        except _OutOfMemoryError:
            return False
        return True

    def attempt(self, run: Callable[[], Trial]) -> Trial:
        """Return the result of ``run`` and restore the state that it changed.

        Raises _OutOfMemoryError if memory ran out.
        """
        try:
            return run()
        except Exception as error:
            if not self._is_out_of_memory(error):
                raise
        finally:
            # Python has deleted the out-of-memory exception by now, so that no frame keeps tensors alive.
            self._restore()
        raise _OutOfMemoryError

    @property
    def _uses_gpu(self) -> bool:
        """Whether CUDA is initialized, which the first step may do."""
        return bool(self._torch.cuda.is_available() and self._torch.cuda.is_initialized())

    def _measured(self, size: int) -> BatchSizeTrial:
        if self._uses_gpu:
            self._torch.cuda.reset_peak_memory_stats()
        batch = self._make_batch(size)
        self._steps(batch, WARMUP_STEPS)
        step_s = self._steps(batch, 1)
        steps = min(max(round(self._seconds / TIMINGS_PER_SIZE / step_s), 1), MAX_STEPS)
        timings = sorted(1e3 * self._steps(batch, steps) for _ in range(TIMINGS_PER_SIZE))
        peak = self._torch.cuda.max_memory_allocated() if self._uses_gpu else None
        return BatchSizeTrial(size, statistics.median(timings), timings[0], timings[-1], self._optimizer_ms(batch), peak)

    def _steps(self, batch: Any, count: int) -> float:
        """Run ``count`` steps; return the seconds per step."""
        self._synchronize()
        start_s = time.perf_counter()
        for _ in range(count):
            self._train_step(batch)
        self._synchronize()
        return max((time.perf_counter() - start_s) / count, 1e-9)

    def _optimizer_ms(self, batch: Any) -> float | None:
        """Return the ms per step that the optimizers take, GPU included; None without optimizers."""
        spent_s = start_s = 0.0

        def begin(*_: Any) -> None:
            nonlocal start_s
            self._synchronize()
            start_s = time.perf_counter()

        def end(*_: Any) -> None:
            nonlocal spent_s
            self._synchronize()
            spent_s += time.perf_counter() - start_s

        with contextlib.ExitStack() as hooks:
            for optimizer in self._optimizers:
                hooks.callback(optimizer.register_step_pre_hook(begin).remove)
                hooks.callback(optimizer.register_step_post_hook(end).remove)
            self._train_step(batch)
        return 1e3 * spent_s if self._optimizers else None

    def profile(self, size: int, trace: Path) -> None:
        """Profile steps with a batch of ``size``, including memory allocations."""
        batch = self._make_batch(size)
        self._steps(batch, WARMUP_STEPS)
        profiler = StepProfiler(
            self._torch, trace, warmup=WARMUP_STEPS, active=PROFILED_STEPS, options={"profile_memory": True}
        )
        try:
            for _ in range(WARMUP_STEPS + PROFILED_STEPS):
                self._train_step(batch)
                profiler.step()
            profiler.stop()
        except BaseException:
            profiler.abandon()
            raise

    def _synchronize(self) -> None:
        if self._uses_gpu:
            self._torch.cuda.synchronize()

    def _restore(self) -> None:
        self._state.restore()
        gc.collect()
        if self._uses_gpu:
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats()
        if "torch._dynamo" in sys.modules:
            # PyTorch limits the number of recompilations, and each size needs at least one.
            self._torch.compiler.reset()

    def _is_out_of_memory(self, error: Exception) -> bool:
        classes = tuple(
            filter(None, (getattr(self._torch, "OutOfMemoryError", None), self._torch.cuda.OutOfMemoryError, MemoryError))
        )
        is_message = OUT_OF_MEMORY.search(str(error)) or INDEX_OVERFLOW.search(str(error))
        return isinstance(error, classes) or (isinstance(error, RuntimeError) and bool(is_message))


def _profile_and_pack(
    runner: _TrialRunner, sizes: BatchSizes, example_size: int, target: Path, name: str, settings: Mapping[str, Any]
) -> None:
    """Profile steps with the example's size, or the largest timed size, and write the bundle."""
    by_size = {trial.batch: trial for trial in sizes.trials if trial.step_ms}
    trial = by_size.get(example_size) or (by_size[max(by_size)] if by_size else None)
    if trial is None:
        return
    with tempfile.TemporaryDirectory(prefix="sawtooth-") as scratch:
        trace = Path(scratch) / "trace.json"
        with contextlib.suppress(_OutOfMemoryError):
            runner.attempt(lambda: runner.profile(trial.batch, trace))
        if not trace.exists():
            print("sawtooth: nothing was written, because memory ran out while the step was profiled.", file=sys.stderr)
            return
        run = {
            "name": name or target.stem,
            "notes": "Steps timed by find_batch_size. Data loading is not included.",
            "settings": {**{str(k): str(v) for k, v in settings.items()}, "batch_size": str(trial.batch)},
            "facts": {"samples_per_step": float(trial.batch), "step_time_ms": trial.step_ms},
            "batches": [result.row() for result in sizes.trials],
        }
        pack_run(target, run, [(trace, {"source_name": "trace.json.gz", "kind": "trace"})])
    print(f"sawtooth: wrote {target}", file=sys.stderr)


def _suffixed(path: Path) -> Path:
    return path if path.suffix == ".sawtooth" else path.with_name(path.name + ".sawtooth")
