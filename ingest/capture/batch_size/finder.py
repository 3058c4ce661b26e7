"""The largest batch that fits and what each size gives, measured where the training is.

    from sawtooth.capture import find_batch_size

    sizes = find_batch_size(train_step, batch, changes=[model, optimizer], path="batches.sawtooth")
    loader = DataLoader(dataset, batch_size=sizes.advised)

``train_step(batch)`` is one whole step: forward, backward, optimizer. ``batch`` is an example whose tensors have the samples along their first
dimension, which other sizes repeat or cut, or a function that makes a batch of a size. ``changes`` is what a step changes: models, optimizers,
gradient scalers, schedulers, generators. They and the random numbers are as before afterwards, whatever ran out of memory. The samples
are there already: what a loader takes for them is not in these times.
"""

from __future__ import annotations

import contextlib
import gc
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.batch_size.search import BatchSizes, BatchSizeTrial, search
from sawtooth.ingest.capture.batch_size.state import TrainingState
from sawtooth.ingest.capture.packing import pack_run
from sawtooth.ingest.capture.profiler import StepProfiler
from sawtooth.ingest.loop.numbers import significant

WARMUP = 2  # steps: kernels are loaded and algorithms chosen in the first, the optimizer has its state in the second
READINGS = 3  # of a size: their middle is its step, the others say how sure
MOST_TIMES = 1024  # the example's batch, where nothing else ends the search
MOST_STEPS = 500  # of a reading
PROFILED = 5
# how PyTorch and its libraries say that memory did not suffice, where they have no class of error for it
FULL = re.compile(r"out of memory|can't allocate memory|(?:CUBLAS|CUDNN|CUSOLVER|NCCL)\w*ALLOC_FAILED", re.I)
# and that a tensor is too large to be indexed: a larger batch does not run either
TOO_LARGE = re.compile(r"32.?bit index|canUse32BitIndexMath|INT_MAX", re.I)


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

    ``least`` is by default a quarter of ``start``, and at least 2, because a batch norm needs two samples.

    ``start`` is the example's own batch, from which the search goes out; each size is timed for ``seconds``, and no further one is begun after
    ``at_most_s``. With ``path`` a ``.sawtooth`` file holds the measured sizes and a trace at ``start``, from which other sizes are predicted.
    Raises ValueError where ``start`` is not known or no tensor of the example has as many samples, TypeError for changes without a state, and what ``train_step`` raises but for want of memory.
    """
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise ValueError(
            "One rank that runs out of memory leaves the others waiting: find the batch size on one GPU, without a process group."
        )
    own = start or (None if callable(batch) else _samples_of(torch, batch))
    if not own:
        raise ValueError("The example has no tensor to take the batch size from: give start=…")
    if not callable(batch) and all(not tensor.dim() or tensor.shape[0] != own for tensor in _tensors(torch, batch)):
        raise ValueError(
            f"No tensor of the example has {own:,} samples along its first dimension, so no other size can be made of it: leave start out, "
            "or give a function that makes a batch of a size."
        )
    make = batch if callable(batch) else lambda size: _resized(torch, batch, own, size)
    bench = _Bench(torch, train_step, make, changes, seconds)
    until = time.monotonic() + at_most_s
    with bench:
        sizes = search(
            own,
            least or max(own // 4, min(own, 2)),
            most or MOST_TIMES * own,
            bench.timed,
            bench.fits,
            lambda: time.monotonic() < until,
        )
        if path is not None and sizes.trials:
            _write(bench, sizes, own, _suffixed(Path(path)), name, settings or {})
    print("\n".join(lines(sizes)), file=sys.stderr)
    return sizes


def lines(sizes: BatchSizes) -> list[str]:
    """Return the table that is printed and what it advises."""
    known = [trial for trial in sizes.trials if trial.step_ms]
    if not known:
        return ["sawtooth: no batch fits into memory."]
    top = max(trial.batch for trial in known)
    rows = [f"{'batch':>8}  {'step, ms':>9}  {'samples/s':>10}  {f'accumulated to {top:,}':>22}  {'peak, GB':>8}"]
    for trial in sizes.trials:
        if trial.step_ms is None:
            rows.append(f"{trial.batch:>8,}  out of memory")
            continue
        memory = f"{trial.memory_bytes / 1e9:.3g}" if trial.memory_bytes is not None else ""
        step, *rates = (
            significant(value or 0.0, 4) for value in (trial.step_ms, trial.samples_per_s, trial.accumulated_per_s(top))
        )
        rows.append(f"{trial.batch:>8,}  {step:>9}  {rates[0]:>10}  {rates[1]:>22}  {memory:>8}".rstrip())
    if sizes.too_large is None:
        return [*rows, f"sawtooth: a batch of {sizes.largest:,} fits; no larger one was tried."]
    return [
        *rows,
        f"sawtooth: the largest batch that fits is {sizes.largest:,}; by the usual rule of 0.8 take {sizes.advised:,}.",
    ]


class _Bench:
    """Runs steps with batches of a size and puts everything back, after each size and at the end."""

    def __init__(
        self, torch: Any, train_step: Callable[[Any], Any], make: Callable[[int], Any], changes: Sequence[Any], seconds: float
    ) -> None:
        self.torch, self.train_step, self.make, self.seconds = torch, train_step, make, seconds
        self.gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._optimizers = [thing for thing in changes if hasattr(thing, "register_step_pre_hook")]
        self._state = TrainingState(torch, changes)

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()
        self._state.restore_random()

    def timed(self, size: int) -> BatchSizeTrial:
        """Return what a batch of ``size`` takes, its times None where it does not fit."""
        return self.attempt(lambda: self._measured(size)) or BatchSizeTrial(size)

    def fits(self, size: int) -> bool:
        """Tell whether a batch of ``size`` runs."""
        return self.attempt(lambda: self._steps(self.make(size), WARMUP)) is not None

    def attempt(self, run: Callable[[], Any]) -> Any:
        """Return the result of ``run``, or None without enough memory; its changes are undone."""
        try:
            return run()
        except Exception as error:
            if not self._is_full(error):
                raise
        finally:  # after the error, whose frames hold the tensors that filled the memory, is gone where it was one of memory
            self._put_back()
        return None

    def _measured(self, size: int) -> BatchSizeTrial:
        if self.gpu:
            self.torch.cuda.reset_peak_memory_stats()
        batch = self.make(size)
        self._steps(batch, WARMUP)
        each_s = self._steps(batch, 1)
        steps = min(max(round(self.seconds / READINGS / each_s), 1), MOST_STEPS)
        readings = sorted(1e3 * self._steps(batch, steps) for _ in range(READINGS))
        peak = self.torch.cuda.max_memory_allocated() if self.gpu else None
        return BatchSizeTrial(size, statistics.median(readings), readings[0], readings[-1], self._optimizer_ms(batch), peak)

    def _steps(self, batch: Any, count: int) -> float:
        """Run steps; return the seconds of one."""
        self._synchronize()
        began = time.perf_counter()
        for _ in range(count):
            self.train_step(batch)
        self._synchronize()
        return max((time.perf_counter() - began) / count, 1e-9)

    def _optimizer_ms(self, batch: Any) -> float | None:
        """Return what the optimizers take in a step, waited for before and after, so that it is theirs alone."""
        spent_s = 0.0
        began_s = 0.0

        def before(*_: Any) -> None:
            nonlocal began_s
            self._synchronize()
            began_s = time.perf_counter()

        def after(*_: Any) -> None:
            nonlocal spent_s
            self._synchronize()
            spent_s += time.perf_counter() - began_s

        with contextlib.ExitStack() as hooks:
            for optimizer in self._optimizers:
                hooks.callback(optimizer.register_step_pre_hook(before).remove)
                hooks.callback(optimizer.register_step_post_hook(after).remove)
            self.train_step(batch)
        return 1e3 * spent_s if self._optimizers else None

    def profile(self, size: int, trace: Path) -> None:
        """Profile steps with a batch of ``size``, allocations included."""
        batch = self.make(size)
        self._steps(batch, WARMUP)
        profiler = StepProfiler(self.torch, trace, warmup=WARMUP, active=PROFILED, options={"profile_memory": True})
        try:
            for _ in range(WARMUP + PROFILED):
                self.train_step(batch)
                profiler.step()
            profiler.stop()
        except BaseException:
            profiler.abandon()
            raise

    def _synchronize(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def _put_back(self) -> None:
        self._state.restore()
        gc.collect()
        if self.gpu:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()
        if "torch._dynamo" in sys.modules:
            self.torch.compiler.reset()  # a graph for each size would use up the recompilations that PyTorch allows

    def _is_full(self, error: Exception) -> bool:
        kinds = tuple(
            filter(None, (getattr(self.torch, "OutOfMemoryError", None), self.torch.cuda.OutOfMemoryError, MemoryError))
        )
        return isinstance(error, kinds) or (
            isinstance(error, RuntimeError) and bool(FULL.search(str(error)) or TOO_LARGE.search(str(error)))
        )


def _write(bench: _Bench, sizes: BatchSizes, own: int, target: Path, name: str, settings: Mapping[str, Any]) -> None:
    by_size = {trial.batch: trial for trial in sizes.trials if trial.step_ms}
    trial = by_size.get(own) or (by_size[max(by_size)] if by_size else None)
    if trial is None:
        return
    with tempfile.TemporaryDirectory(prefix="sawtooth-") as scratch:
        trace = Path(scratch) / "trace.json"
        bench.attempt(lambda: bench.profile(trial.batch, trace))
        if not trace.exists():
            print("sawtooth: nothing was written: memory did not suffice to profile the step.", file=sys.stderr)
            return
        run = {
            "name": name or target.stem,
            "notes": "Steps timed by find_batch_size, with the samples at hand: a loader's time is not in them.",
            "settings": {**{str(k): str(v) for k, v in settings.items()}, "batch_size": str(trial.batch)},
            "facts": {"samples_per_step": float(trial.batch), "step_time_ms": trial.step_ms},
            "batches": [each.row() for each in sizes.trials],
        }
        pack_run(target, run, [(trace, {"source_name": "trace.json.gz", "kind": "trace"})])
    print(f"sawtooth: wrote {target}", file=sys.stderr)


def _suffixed(path: Path) -> Path:
    return path if path.suffix == ".sawtooth" else path.with_name(path.name + ".sawtooth")


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(torch, part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(torch, part)


def _samples_of(torch: Any, batch: Any) -> int | None:
    return next((int(tensor.shape[0]) for tensor in _tensors(torch, batch) if tensor.dim()), None)


def _resized(torch: Any, value: Any, own: int, size: int) -> Any:
    """Return the example with its samples repeated or cut to ``size`` in each tensor that has ``own``."""
    if isinstance(value, torch.Tensor):
        if not value.dim() or value.shape[0] != own or size == own:
            return value
        larger = value.index_select(0, torch.arange(size, device=value.device) % own)
        return larger.pin_memory() if value.device.type == "cpu" and value.is_pinned() else larger
    if isinstance(value, Mapping):
        parts = {key: _resized(torch, part, own, size) for key, part in value.items()}
        try:
            return type(value)(parts)  # type: ignore[call-arg]
        except TypeError:  # a defaultdict begins with what makes its values
            return parts
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_resized(torch, part, own, size) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(_resized(torch, part, own, size) for part in value)
    return value
