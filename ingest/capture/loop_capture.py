"""Capture of one training loop in phases: skip, time, profile and time again."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from sawtooth.ingest.capture import batches, sampler_process
from sawtooth.ingest.capture.between_steps import BetweenSteps
from sawtooth.ingest.capture.devices import current_gpu
from sawtooth.ingest.capture.in_process.loader_waits import LoaderWaits
from sawtooth.ingest.capture.in_process.postponed import AFTER_OTHERS, NO_TRACE, may_start
from sawtooth.ingest.capture.in_process.profilers import follow
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import make_scratch_folder, pack_run
from sawtooth.ingest.capture.plan import MIN_STEPS, Plan
from sawtooth.ingest.capture.process_rank import environment_number
from sawtooth.ingest.capture.profiler import StepProfiler
from sawtooth.ingest.loop import batch_files
from sawtooth.ingest.loop.numbers import in_words, significant
from sawtooth.installation import recorder_version


class Capture:
    """The context manager that ``profile`` returns.

    ``step()`` ends a step of the loop. ``path`` is None until the file is written. ``why_not`` lists what is missing in the file, or why there
    is no file. A capture never raises an error into the training loop.
    """

    def __init__(
        self,
        path: Path,
        run: dict[str, Any],
        *,
        plan: Plan,
        sampler: bool,
        options: dict[str, Any],
        time_batches: bool = False,
        torch: Any = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        start_sampler: Callable[[Path], Any] | None = None,
    ) -> None:
        self.target = path
        self.path: Path | None = None
        self.why_not: list[str] = []
        self.step_time_ms: float | None = None
        self.step_time_after_ms: float | None = None
        self.done = False
        self._run, self._plan, self._options = run, plan, options
        self._torch = torch
        self._clock_ns = clock_ns
        self._start_sampler = start_sampler or sampler_process.start_sampler
        self._with_sampler = sampler
        self._sampler: Any = None
        self._profiler: StepProfiler | None = None
        self._scratch: Path | None = None
        self._phase = "skipping"
        self._phase_steps = self._phase_start_ns = self._timed_steps = 0
        self._marks: MarkWriter | None = None
        self._marked_steps = 0
        self._time_batches = time_batches
        self._unwatch: list[Callable[[], None]] = []
        self._between_steps = BetweenSteps()
        self._loader_waits = LoaderWaits()
        self._read_phase, self._read_wait = self._between_steps.phase_reader(), self._loader_waits.wait_reader()
        self._interruptions = 0  # Number of profiles that another profiler interrupted.
        self._undisturbed = True  # False if an evaluation or a checkpoint came between the timed steps.

    def __enter__(self) -> Capture:
        with self._quietly("the capture could not begin"):
            self._set_up()
        return self

    def _set_up(self) -> None:
        if self._torch is None:
            import torch

            self._torch = torch
        self._unwatch.append(follow(self._torch))
        self._scratch = make_scratch_folder(self.target)
        self._print(f"capturing into {self.target}: {self._plan.sentence()}")
        if self._with_sampler:
            try:
                self._sampler = self._start_sampler(self._scratch / "live")
            except OSError as error:
                self.why_not.append(f"no telemetry: the sampler did not start ({error})")
        # Other versions of PyTorch may lack these functions. The rest is still recorded.
        with contextlib.suppress(Exception):
            modules, loaders = self._torch.nn.modules.module, self._torch.utils.data.dataloader
            self._unwatch += [self._between_steps.watch_evaluation(modules), self._loader_waits.watch(loaders)]
            self._unwatch += batches.watch_loaders(self._scratch) if self._time_batches else []
            self._unwatch.append(self._between_steps.watch_saving(self._torch))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.done:
            with self._quietly("the capture could not be finished"):
                self._end_early()
        self._clean_up()

    def step(self, *, samples: float | None = None, tokens: float | None = None) -> None:
        """End a step of the loop; pass its ``samples`` and their length in ``tokens`` if these vary."""
        if self.done:
            return
        try:
            self._mark(samples, tokens)
            self._advance()
        except Exception as error:  # Errors of the recorder must not end the training.
            self._end_profiler(write=False)
            self._give_up(f"the capture failed ({type(error).__name__}: {error})")

    def _mark(self, samples: float | None, tokens: float | None) -> None:
        # The file is opened at the end of the first step, because the loop then uses its GPU.
        if self._marks is None and not self._marked_steps:
            with contextlib.suppress(OSError):
                gpu = current_gpu(self._torch)
                self._marks = MarkWriter(self._marks_file, rank=_rank().get("rank"), recorder=recorder_version(), gpu=gpu)
        phase = self._read_phase(0)
        self._undisturbed &= phase == "train" or self._phase != "timing"
        if self._marks is not None:
            marked_phase = "profile" if self._phase == "profiling" else phase
            waited = self._read_wait(0, phase)
            self._marks.mark(self._marked_steps, phase=marked_phase, batch=samples, length=tokens, waited=waited)
        self._marked_steps += 1

    def _advance(self) -> None:
        self._phase_steps += 1
        if self._phase == "skipping" and self._phase_steps >= self._plan.skip:
            self._begin("timing")
        elif self._phase == "timing" and self._plan.ends_timing(
            self._phase_steps, (self._clock_ns() - self._phase_start_ns) / 1e9, self._marked_steps
        ):
            self.step_time_ms = self._mean_step_ms()
            included = "" if self._undisturbed else ", with evaluations and checkpoints"
            ms = self.step_time_ms
            result = f"{self._timed_steps} steps took {in_words(ms, 4)} each{included}; " if ms else ""
            self._phase = "waiting"
            self._print(f"{result}profiling {self._plan.active} steps {'now' if may_start() else AFTER_OTHERS}")
        if self._phase == "waiting" and may_start(self._interruptions):
            self._start_profiler()
        elif self._profiler is not None and self._profiler.interrupted:
            self._end_profiler(write=False)
            self._phase, self._interruptions = "waiting", self._interruptions + 1
        elif self._profiler is not None:
            self._profiler.step()
            if self._phase_steps >= self._plan.warmup + self._plan.active:
                self._end_profiler(write=True)
                self._begin("after")
        elif self._phase == "after" and self._phase_steps >= self._plan.steps_after(self._timed_steps):
            self.step_time_after_ms = self._mean_step_ms()
            self._finish()

    def _begin(self, phase: str) -> None:
        self._synchronize()
        self._phase, self._phase_steps, self._phase_start_ns = phase, 0, self._clock_ns()

    def _mean_step_ms(self) -> float | None:
        """Return the mean step time of the phase in ms; None if the phase has fewer than MIN_STEPS steps."""
        self._synchronize()  # The host runs ahead of the GPU, so it waits for the GPU once, at the end.
        if self._phase_steps < MIN_STEPS:
            return None
        if self._phase == "timing":
            self._timed_steps = self._phase_steps
        return (self._clock_ns() - self._phase_start_ns) / self._phase_steps / 1e6

    def _synchronize(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()

    def _start_profiler(self) -> None:
        self._profiler = StepProfiler(
            self._torch, self._trace, warmup=self._plan.warmup, active=self._plan.active, options=self._options
        )
        self._phase, self._phase_steps = "profiling", 0

    def _end_profiler(self, *, write: bool) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop() if write else profiler.abandon()

    @property
    def _marks_file(self) -> Path:
        assert self._scratch is not None
        return self._scratch / "marks.jsonl"

    @property
    def _trace(self) -> Path:
        return self._marks_file.with_name("trace.json")

    def _end_early(self) -> None:
        """Write the data that was recorded before the loop ended."""
        if self._phase == "timing":
            self.step_time_ms = self._mean_step_ms()
        if self._profiler is not None and self._profiler.interrupted:
            self._end_profiler(write=False)
            self._phase = "waiting"
        elif self._profiler is not None:
            profiled = self._phase_steps - self._plan.warmup
            if profiled > 0:
                self.why_not.append(f"only {profiled} of {self._plan.active} steps were profiled, because the loop ended")
            self._end_profiler(write=profiled > 0)
        if self._trace.exists() or self._sampler is not None or self._phase == "waiting":
            if not self._trace.exists():
                too_short = "no trace: the loop ended before the profiled steps; set profile(steps=…) to its number of steps"
                self.why_not.append(NO_TRACE if self._phase == "waiting" else too_short)
            self._finish()
            return
        end = f"the loop ended after {self._marked_steps} steps"
        too_few = f", but {self._plan.min_steps} are needed. Call capture.step() after each step"
        advice = "for a short loop, set profile(steps=…) to its number of steps"
        self._give_up(f"{end}{too_few if self._marked_steps < self._plan.min_steps else ', while it was timed'}; {advice}")

    def _finish(self) -> None:
        sources: list[tuple[Path, dict[str, Any]]] = []
        if self._trace.exists():
            sources.append((self._trace, {"source_name": "trace.json.gz", "kind": "trace", **_rank()}))
        if (telemetry := self._telemetry()) is not None:
            sources.append((telemetry, {"source_name": "telemetry.jsonl", "kind": "telemetry"}))
        if not sources and self._marked_steps < self._plan.min_steps:
            self._give_up("; ".join(["neither a trace nor telemetry was recorded", *self.why_not]))
            return
        if self._marks is not None and self._marked_steps:
            self._marks.close()
            sources.append((self._marks_file, {"source_name": "marks.jsonl", "kind": "marks", **_rank()}))
        facts = {**self._run["facts"], **self._loader_facts()}
        # After an evaluation or a checkpoint, the undisturbed step time comes from the marks instead.
        if self.step_time_ms is not None and self._undisturbed:
            facts["step_time_ms"] = self.step_time_ms
        settings = dict(self._run["settings"])
        if self.step_time_after_ms is not None:
            settings["step time after the profile, ms"] = significant(self.step_time_after_ms, 4)
        texts = {"name": self._run["name"] or self.target.stem, "notes": self._notes(), "tags": list(self._run["tags"])}
        pack_run(self.target, {**texts, "settings": settings, "facts": facts}, sources)
        self.path, self.done = self.target, True
        self._clean_up()
        print("; ".join([f"sawtooth: wrote {self.target}", *self.why_not]), file=sys.stderr)

    def _notes(self) -> str:
        notes = [self._run["notes"], *self.why_not]
        if self._timed_steps and self._undisturbed:
            notes.insert(1, f"Step time measured over {self._timed_steps} steps without the profiler.")
        return "\n".join(filter(None, notes))

    def _loader_facts(self) -> dict[str, float | str]:
        loading = batch_files.read_loading(self._scratch) if self._scratch is not None else None
        return batch_files.loader_facts(loading) if loading is not None else {}

    def _telemetry(self) -> Path | None:
        if self._sampler is None or self._scratch is None:
            return None
        sampler, self._sampler = self._sampler, None
        target = self._scratch / "telemetry.jsonl"
        why_not = sampler_process.stop_and_write(sampler, self._scratch / "live", target)
        if why_not is not None:
            self.why_not.append(f"no telemetry: {why_not}")
            return None
        return target

    def _print(self, message: str) -> None:
        if not _rank().get("rank"):  # Only one rank of a job prints.
            print(f"sawtooth: {message}", file=sys.stderr, flush=True)

    def _give_up(self, why: str) -> None:
        self.why_not.append(why)
        self.done = True
        print(f"sawtooth: no capture was written: {why}", file=sys.stderr)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._sampler is not None:
            with self._quietly("the sampler could not be stopped"):
                sampler_process.stop_sampler(self._sampler)
            self._sampler = None
        if self._marks is not None:
            with contextlib.suppress(OSError):
                self._marks.close()
            self._marks = None
        while self._unwatch:
            self._unwatch.pop()()
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            shutil.rmtree(scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _quietly(self, failure: str) -> Any:
        try:
            yield
        except Exception as error:  # Errors of the recorder must not end the training.
            self._give_up(f"{failure} ({type(error).__name__}: {error})")


def _rank() -> dict[str, int]:
    rank = environment_number("RANK")
    return {"rank": rank} if rank is not None else {}
