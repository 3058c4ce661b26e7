"""Record a training loop in one ``.sawtooth`` file: the loop as it runs, then under the profiler, then as it runs again.

    from sawtooth.capture import profile

    with profile("baseline.sawtooth", samples=64, parameters=model) as capture:
        for batch in loader:
            train_step(batch)
            capture.step()

After ``skip`` steps a stopwatch measures the undisturbed loop for ``seconds`` (and at least MIN_TIMED steps), while the sampler records the
GPU from a process of its own. Then torch.profiler records ``active`` steps, and the stopwatch runs a little longer. The file is written as soon as
that is done; the loop goes on undisturbed. Drop the file on the dashboard, or `sawtooth ingest` it. With Lightning or Hugging Face's Trainer,
the callbacks of ``sawtooth.capture`` call ``step`` for you. Needs PyTorch and, for telemetry, nvidia-ml-py; nothing else, so that it can go where the training is.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from sawtooth.ingest.capture import beside
from sawtooth.ingest.capture.devices import current_gpu, name_gpus
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import FORMAT, pack
from sawtooth.place import recorder_version

MIN_TIMED = 20  # steps: fewer cannot show a checkpoint every ten, nor a full prefetch queue running dry
MAX_TIMED = 5000  # steps, however short they are
AFTER_SHARE = 0.2  # of the steps timed before are timed again after, which shows a disturbance that stays
AFTER_LEAST = 5


class Capture:
    """The context manager that ``profile`` returns. ``step()`` ends a step of the loop; ``path`` is the file once it is written.

    ``why_not`` says what is missing in the file (telemetry, say) or why there is none. A capture never raises into the training loop.
    """

    def __init__(
        self,
        path: Path,
        run: dict[str, Any],
        *,
        skip: int,
        seconds: float,
        warmup: int,
        active: int,
        sampler: bool,
        options: dict[str, Any],
        torch: Any = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        start_sampler: Callable[[Path], Any] | None = None,
    ) -> None:
        self.wanted = path
        self.path: Path | None = None
        self.why_not: list[str] = []
        self.step_time_ms: float | None = None
        self.step_time_after_ms: float | None = None
        self.done = False
        self._run, self._skip, self._seconds, self._warmup, self._active = run, skip, seconds, warmup, active
        self._options = options
        self._torch = torch
        self._clock_ns = clock_ns
        self._start_sampler = start_sampler or beside.start_sampler
        self._with_sampler = sampler
        self._sampler: Any = None
        self._profiler: Any = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._phase = "skipping"
        self._count = 0
        self._since_ns = 0
        self._timed = 0
        self._marks: MarkWriter | None = None
        self._marked = 0

    def __enter__(self) -> Capture:
        if self._torch is None:
            import torch

            self._torch = torch
        self._scratch = tempfile.TemporaryDirectory(prefix="sawtooth-")
        with contextlib.suppress(OSError):
            self._marks = MarkWriter(
                self._marks_file, rank=_rank().get("rank"), recorder=recorder_version(), gpu=current_gpu(self._torch)
            )
        if self._with_sampler:
            try:
                self._sampler = self._start_sampler(Path(self._scratch.name) / "live")
            except OSError as error:
                self.why_not.append(f"no telemetry: the sampler did not start ({error})")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.done:
            with self._quietly("the capture could not be finished"):
                self._end_early()
        self._clean_up()

    def step(self, *, samples: float | None = None, tokens: float | None = None) -> None:
        """End a step of the training loop, in which there were ``samples`` of a length of ``tokens``, where they vary."""
        if self.done:
            return
        try:
            if self._marks is not None:
                phase = "profile" if self._phase == "profiling" else "train"
                self._marks.mark(self._marked, phase=phase, batch=samples, length=tokens)
                self._marked += 1
            self._advance()
        except Exception as error:  # whatever fails in here must not end somebody's training
            self._abandon_profiler()
            self._give_up(f"the capture failed ({type(error).__name__}: {error})")

    def _advance(self) -> None:
        self._count += 1
        if self._phase == "skipping" and self._count >= self._skip:
            self._begin("timing")
        elif self._phase == "timing" and self._timed_enough():
            self.step_time_ms = self._stop_watch()
            self._start_profiler()
        elif self._phase == "profiling":
            self._profiler.step()
            if self._count >= self._warmup + self._active:
                self._stop_profiler()
                self._begin("after")
        elif self._phase == "after" and self._count >= max(AFTER_LEAST, int(AFTER_SHARE * self._timed)):
            self.step_time_after_ms = self._stop_watch()
            self._finish()

    def _begin(self, phase: str) -> None:
        self._synchronize()
        self._phase, self._count, self._since_ns = phase, 0, self._clock_ns()

    def _timed_enough(self) -> bool:
        return self._count >= MAX_TIMED or (
            self._count >= MIN_TIMED and self._clock_ns() - self._since_ns >= self._seconds * 1e9
        )

    def _stop_watch(self) -> float:
        self._synchronize()  # the host runs ahead of the device: one wait at the end, none in between
        if self._phase == "timing":
            self._timed = self._count
        return (self._clock_ns() - self._since_ns) / self._count / 1e6

    def _synchronize(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()

    def _start_profiler(self) -> None:
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        options = {"activities": activities, "record_shapes": True, **self._options}
        schedule = profiler.schedule(wait=0, warmup=self._warmup, active=self._active, repeat=1)
        self._profiler = profiler.profile(schedule=schedule, on_trace_ready=self._export, **options)
        self._profiler.start()
        name_gpus(self._profiler, self._torch)
        self._phase, self._count = "profiling", 0

    def _export(self, profiler: Any) -> None:
        profiler.export_chrome_trace(str(self._trace))

    def _stop_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()

    def _abandon_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns that its schedule was not kept
                profiler.stop()
            self._trace.unlink(missing_ok=True)

    @property
    def _marks_file(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name) / "marks.jsonl"

    @property
    def _trace(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name) / "trace.json"

    def _end_early(self) -> None:
        """The loop ended before the plan did: keep what there is."""
        if self._phase == "timing" and self._count >= AFTER_LEAST:
            self.step_time_ms = self._stop_watch()
        if self._profiler is not None:
            if self._count > self._warmup:
                self.why_not.append(f"only {self._count - self._warmup} of {self._active} steps were profiled: the loop ended")
                self._stop_profiler()
            else:
                self._abandon_profiler()
        if self._trace.exists() or self._sampler is not None:
            if not self._trace.exists():
                self.why_not.append("no trace: the loop ended before the profiled steps")
            self._finish()
            return
        wanted = self._skip + MIN_TIMED + self._warmup + self._active
        self._give_up(f"the loop ended after too few steps (at least {wanted} are needed); call capture.step() after each")

    def _finish(self) -> None:
        """Write the bundle."""
        sources: dict[str, Path] = {}
        recordings: list[dict[str, Any]] = []
        if self._trace.exists():
            sources["sources/0001.gz"] = self._trace
            recordings.append({"member": "sources/0001.gz", "source_name": "trace.json.gz", "kind": "trace", **_rank()})
        telemetry = self._telemetry()
        if telemetry is not None:
            member = f"sources/{len(sources) + 1:04d}.gz"
            sources[member] = telemetry
            recordings.append({"member": member, "source_name": "telemetry.jsonl", "kind": "telemetry"})
        if self._marks is not None and self._marked:
            self._marks.close()
            member = f"sources/{len(sources) + 1:04d}.gz"
            sources[member] = self._marks_file
            recordings.append({"member": member, "source_name": "marks.jsonl", "kind": "marks", **_rank()})
        if not any(recording["kind"] != "marks" for recording in recordings):
            self._give_up("neither a trace nor telemetry was recorded")
            return
        facts = {**self._run["facts"], **({"step_time_ms": self.step_time_ms} if self.step_time_ms is not None else {})}
        settings = dict(self._run["settings"])
        if self.step_time_after_ms is not None:
            settings["step time after the profile, ms"] = f"{self.step_time_after_ms:.4g}"
        run = {
            "name": self._run["name"] or self.wanted.stem,
            "recordings": recordings,
            "notes": self._notes(),
            "tags": list(self._run["tags"]),
            "settings": settings,
            "facts": facts,
        }
        pack(
            self.wanted,
            json.dumps({"runs": [run], "format": FORMAT, "tool_version": recorder_version()}, indent=1).encode(),
            sources,
        )
        self.path, self.done = self.wanted, True
        self._clean_up()
        print(f"sawtooth: wrote {self.wanted}", file=sys.stderr)

    def _notes(self) -> str:
        timed = f"Step time measured over {self._timed} steps without the profiler." if self._timed else ""
        return "\n".join(part for part in (self._run["notes"], timed, *self.why_not) if part)

    def _telemetry(self) -> Path | None:
        if self._sampler is None or self._scratch is None:
            return None
        sampler, self._sampler = self._sampler, None
        target = Path(self._scratch.name) / "telemetry.jsonl"
        why_not = beside.take_session(sampler, Path(self._scratch.name) / "live", target)
        if why_not is not None:
            self.why_not.append(f"no telemetry: {why_not}")
        return None if why_not is not None else target

    def _give_up(self, why: str) -> None:
        self.why_not.append(why)
        self.done = True
        print(f"sawtooth: no capture was written: {why}", file=sys.stderr)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._sampler is not None:
            with self._quietly("the sampler could not be stopped"):
                beside.stop_sampler(self._sampler)
            self._sampler = None
        if self._marks is not None:
            with contextlib.suppress(OSError):
                self._marks.close()
            self._marks = None
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            scratch.cleanup()

    @contextlib.contextmanager
    def _quietly(self, what: str) -> Any:
        try:
            yield
        except Exception as error:  # as in step
            self._give_up(f"{what} ({type(error).__name__}: {error})")


def profile(
    path: str | Path,
    *,
    name: str = "",
    samples: float | None = None,
    tokens: float | None = None,
    parameters: Any = None,
    flops: float | None = None,
    settings: dict[str, Any] | None = None,
    notes: str = "",
    tags: tuple[str, ...] = (),
    skip: int = 10,
    seconds: float = 10.0,
    warmup: int = 3,
    active: int = 5,
    sampler: bool = True,
    **options: Any,
) -> Capture:
    """Return a context manager that captures the training loop inside it; call its ``step()`` after each step.

    ``samples``, ``tokens`` and ``flops`` are per step; ``parameters`` is their number or the model. ``settings`` are what a sweep varies, such as
    the batch size. ``options`` go to torch.profiler.profile (``with_stack=True``, ``profile_memory=True``): each of them slows the profiled steps.
    With several ranks each writes its own file (``-rank3`` before the suffix), and one per host samples.
    """
    target = Path(path)
    if target.suffix != ".sawtooth":
        target = target.with_name(target.name + ".sawtooth")
    rank = os.environ.get("RANK")
    if rank is not None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        target = target.with_name(f"{target.stem}-rank{int(rank)}{target.suffix}")
        sampler = sampler and os.environ.get("LOCAL_RANK", "0") == "0"
    facts = {
        "samples_per_step": samples,
        "tokens_per_step": tokens,
        "parameters": _count_parameters(parameters),
        "flops_per_step": flops,
    }
    run = {
        "name": name,
        "notes": notes,
        "tags": tags,
        "settings": {str(k): str(v) for k, v in (settings or {}).items()},
        "facts": {k: float(v) for k, v in facts.items() if v},  # 0 says nothing
    }
    return Capture(target, run, skip=skip, seconds=seconds, warmup=warmup, active=active, sampler=sampler, options=options)


def _rank() -> dict[str, int]:
    rank = os.environ.get("RANK")
    return {"rank": int(rank)} if rank else {}


def _count_parameters(parameters: Any) -> float | None:
    if parameters is None or isinstance(parameters, int | float):
        return parameters
    counted = parameters.parameters() if hasattr(parameters, "parameters") else parameters
    return float(sum(p.numel() for p in counted))
