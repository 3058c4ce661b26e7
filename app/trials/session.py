"""One session of `sawtooth try`: the base run, each change alone, then the kept changes together."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.analysis.compare.prediction_record import FOLLOWS, remember
from sawtooth.analysis.compare.significance.measured_steps import mean_of_all, scale
from sawtooth.analysis.compare.significance.trial import judge
from sawtooth.app import format as fmt
from sawtooth.app.trials import folders, steps
from sawtooth.app.trials.choosing import Candidate, group_of
from sawtooth.app.trials.measuring import measured_run, predicted_together
from sawtooth.app.trials.processes import wait_for_closed_connections
from sawtooth.app.trials.running import FinishedRun, RunRequest, run
from sawtooth.app.trials.trial import MEASURED_OUTCOMES, Base, Trial
from sawtooth.ingest.capture.command.interpreter import command_with_python
from sawtooth.ingest.capture.trials.settings import TrialSettings
from sawtooth.ingest.loop.command import default_run_name
from sawtooth.ingest.schema import DataFolder, write_atomically

MAX_WIDTH_OF_GAIN = 0.1  # Share of the gain. A trial ends when the interval of its step time is not wider.
MAX_WIDTH_OF_STEP = 0.02  # Share of the step. A base run ends when the interval of its step time is not wider.
NO_REPEAT = "This run without changes gave no step time. {why}"
PORT_TAKEN = "A port of the training is still in use. The run is repeated when the port is free, which takes a minute."


@dataclass(frozen=True)
class Options:
    """The user's options: seconds per run, copies of the folder, allowed writes and numeric changes."""

    seconds: float = 60.0
    copies: bool = False
    writes: bool = False
    numerics: bool = False


class TrialSession:
    """The runs of one command; ``say`` gets a line at the start of each run."""

    def __init__(self, command: Sequence[str], data: DataFolder, options: Options, say: Callable[[str], None]) -> None:
        self.command, self.options = list(command), options
        self.words, self.python = command_with_python(command)
        self.name = default_run_name(command)
        self.began_s = time.time()
        self.bases: list[Base] = []
        self.trials: list[Trial] = []
        self._data, self._say = data, say
        self._folder = Path.cwd()
        self._listing = folders.listing(self._folder, data.root.resolve()) if not options.copies else {}
        self._count = 0
        self._stack = contextlib.ExitStack()
        # The prefix is short, because a loader's socket is below this folder, and Linux limits its path to 107 bytes.
        work = tempfile.TemporaryDirectory(prefix="sawtooth-try-", ignore_cleanup_errors=True)
        self._work = Path(self._stack.enter_context(work))

    def __enter__(self) -> TrialSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def base(self, *, first: bool = False) -> FinishedRun:
        """Run the command without changes and store its result; the first run is also profiled and sampled."""
        smallest_gain_ms = min((abs(self._gain_ms(trial)) for trial in self.trials if trial.measured_ms), default=0.0)

        def enough(step_times: Sequence[float]) -> bool:
            mean_ms, half_width_ms = steps.mean_and_half_width(step_times)
            max_width_ms = max(MAX_WIDTH_OF_GAIN * smallest_gain_ms, MAX_WIDTH_OF_STEP * mean_ms)
            return 2 * half_width_ms <= max_width_ms

        finished = self._run({}, "base", enough, profiles=first)
        if finished.bundle is not None and finished.ending in ("measured", "ended"):
            ended = time.monotonic()
            result, measured, run_id = measured_run(finished.bundle, self._data)
            if measured.best_ms is not None:
                self.bases.append(Base(finished, result, measured, run_id, time.monotonic() - ended))
                return finished
        if not first:
            self._say(NO_REPEAT.format(why=finished.why_unmeasured))
        return finished

    def try_out(self, candidates: Sequence[Candidate]) -> Trial:
        """Run the command with the changes of ``candidates``.

        ``decide`` judges the trial after the next base run.
        """
        trial = Trial(list(candidates), after_base=len(self.bases) - 1)
        self.trials.append(trial)
        if len(candidates) > 1:
            together = predicted_together(self.bases[0].result, self._data, candidates)
            trial.predicted_ms, trial.predicted_low_ms, trial.predicted_high_ms = together
        changes = {candidate.slug: candidate.values for candidate in candidates}
        base_ms = self.base_ms or 0.0

        def enough(step_times: Sequence[float]) -> bool:
            mean_ms, half_width_ms = steps.mean_and_half_width(step_times)
            gain_ms = base_ms - mean_ms / trial.times_work
            return 2 * half_width_ms <= MAX_WIDTH_OF_GAIN * abs(gain_ms)

        finished = self._run(changes, trial.slug, enough)
        trial.run = finished
        trial.losses = next((list(notes["losses"]) for notes in finished.notes if notes.get("losses")), [])
        self._judge_end(trial, finished)
        return trial

    def _judge_end(self, trial: Trial, finished: FinishedRun) -> None:
        """Read the measurement of ``trial``; set the status if the run failed or if the changes had no effect."""
        trial.why = " ".join(filter(None, (finished.why, *finished.not_freed)))
        if finished.ending in ("out_of_memory", "failed", "hung"):
            trial.status = "out_of_memory" if finished.ending == "out_of_memory" else "failed"
            return
        if finished.ending == "guarded":
            files = ", ".join(dict.fromkeys(file["path"] for file in finished.files))
            trial.status, trial.why = "failed", f"The trial was ended before it changed {files}."
            return
        slugs = [candidate.slug for candidate in trial.candidates]
        unproven = [
            slug for slug in slugs if not finished.notes or any(slug not in notes["proofs"] for notes in finished.notes)
        ]
        refused = next((notes["refused"][slug] for notes in finished.notes for slug in slugs if slug in notes["refused"]), "")
        errors = next((notes["errors"][0] for notes in finished.notes if notes["errors"]), "")
        trial.proof = " ".join(dict.fromkeys(proof for notes in finished.notes for proof in notes["proofs"].values()))
        if finished.bundle is not None:
            _, trial.measured, trial.run_id = measured_run(finished.bundle, self._data)
            trial.measured_ms, trial.low_ms, trial.high_ms = (
                trial.measured.best_ms,
                trial.measured.low_ms,
                trial.measured.high_ms,
            )
        if unproven:
            trial.status = "no_effect"
            trial.why = (
                refused
                or (f"Sawtooth could not make the change ({errors})." if errors else "")
                or f"There is no proof that {' and '.join(unproven)} took effect."
            )
        elif trial.measured_ms is None:
            trial.status, trial.why = "failed", trial.why or finished.why_unmeasured

    def decide(self) -> None:
        """Set each trial's status by the base runs before and after the trial, and its costs by all base runs."""
        unprofiled = [base.run for base in self.bases[1:]]  # The costs of the first base run include the profiler's.
        for trial in self.trials:
            if trial.run is not None and unprofiled:
                trial.memory_mib = _excess(trial.run.memory_mib, [run.memory_mib for run in unprofiled])
                trial.start_s = _excess(trial.run.start_s, [run.start_s for run in unprofiled])
            if trial.measured is None or trial.status in ("no_effect", "failed", "out_of_memory", "by_hand"):
                continue
            neighbours = [base.measured for base in self.bases[trial.after_base : trial.after_base + 2]]
            measured = scale(trial.measured, 1 / trial.times_work)
            judged = judge(neighbours, measured, [base.measured for base in self.bases], self.drift_ms)
            trial.status = judged.word
            if judged.word == "not_shown":
                is_within_drift = judged.change_ms is not None and judged.verdict.shown
                drift = f"Without a change, the step time drifts by {fmt.duration_ms(judged.drift_ms)}."
                trial.why = drift if is_within_drift else judged.verdict.why

    @property
    def drift_ms(self) -> float:
        """The largest difference between the halves of a base run, ms."""
        halves = [steps.half_medians(base.run.step_times_ms) for base in self.bases]
        return max((abs(first - second) for first, second in filter(None, halves)), default=0.0)

    @property
    def base_ms(self) -> float | None:
        """The mean step time of the base runs, ms."""
        return mean_of_all([base.measured.best_ms for base in self.bases])

    @property
    def base_interval_ms(self) -> tuple[float | None, float | None]:
        """The lowest and the highest end of the base runs' intervals, ms."""
        lows = [base.measured.low_ms for base in self.bases if base.measured.low_ms is not None]
        highs = [base.measured.high_ms for base in self.bases if base.measured.high_ms is not None]
        return min(lows, default=None), max(highs, default=None)

    def kept_changes(self) -> list[Candidate]:
        """Return the single changes with status "kept", in their order; of a group, only the fastest."""
        best: dict[str, Trial] = {}
        for trial in self.trials:
            if trial.status == "kept" and len(trial.candidates) == 1:
                group = group_of(trial.candidates[0])
                if group not in best or (trial.measured_ms or 0.0) < (best[group].measured_ms or 0.0):
                    best[group] = trial
        return [trial.candidates[0] for trial in self.trials if trial in best.values()]

    def remember(self) -> None:
        """Store the predictions of single changes with their measured step times in the data folder."""
        for trial in self.trials:
            change = trial.candidates[0]
            if trial.status not in MEASURED_OUTCOMES or len(trial.candidates) > 1 or trial.times_work != 1.0:
                continue
            if trial.run_id and change.rule and change.predicted_ms and trial.measured_ms:
                prediction = Prediction((change.rule,), change.predicted_ms, trial.measured_ms, change.low_ms, change.high_ms)
                remember(self._data, self.bases[0].run_id, trial.run_id, prediction)

    def store(self, result: str) -> Path:
        """Store the result in the data folder under the number in the runs' tag ``try=…``; return the path."""
        path = self._data.root / "trials" / f"{int(self.began_s)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, result.encode())
        return path

    def changed_files(self) -> list[str]:
        """Return the files of the working folder that the runs changed unnoticed by the guard."""
        return folders.changed_files(self._listing, self._folder, self._data.root.resolve()) if self._listing else []

    def new_files(self) -> list[str]:
        """Return the files that the runs added to the working folder."""
        return folders.added_files(self._listing, self._folder, self._data.root.resolve()) if self._listing else []

    def _gain_ms(self, trial: Trial) -> float:
        return (self.base_ms or 0.0) - (trial.measured_ms or 0.0) / trial.times_work

    def _run(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        label: str,
        enough: Callable[[Sequence[float]], bool],
        *,
        profiles: bool = False,
    ) -> FinishedRun:
        finished = self._run_once(changes, label, enough, profiles=profiles)
        if finished.port_is_taken and self._count > 1:
            self._say(PORT_TAKEN)
            wait_for_closed_connections()
            finished = self._run_once(changes, label, enough, profiles=profiles)
        return finished

    def _run_once(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        label: str,
        enough: Callable[[Sequence[float]], bool],
        *,
        profiles: bool,
    ) -> FinishedRun:
        self._count += 1
        work = self._work / str(self._count)
        folder, words = self._folder, self.words
        if self.options.copies:
            folder = work / "copy"
            folders.copy(self._folder, folder)
            words = [folders.move_path(word, self._folder, folder) for word in words]
        number = f" {len(self.bases) + 1}" if label == "base" and self.bases else ""
        values = ", ".join(f"{name} {value}" for change in changes.values() for name, value in change.items() if name != "kind")
        self._say(f"{self._count}. {label}{number}{f' ({values})' if values else ''}")
        first = self.bases[0] if self.bases else None
        finished = run(
            RunRequest(
                words,
                self.command,
                f"{self.name}, {label}{number}",
                folder,
                work,
                TrialSettings(
                    saves=str(work / "saves"),
                    changes=changes,
                    guards=not self.options.writes,
                    private=(str(work),),
                    began_s=self.began_s,
                    losses=self.options.numerics,
                ),
                self.options.seconds,
                start_s=first.run.start_s if first is not None else None,
                profiles=profiles,
                enough=enough,
                settings_shown={"try": label},
                tags=[f"try={int(self.began_s)}", *([f"{FOLLOWS}{first.run_id}"] if first is not None and changes else [])],
            )
        )
        if self.options.copies:
            shutil.rmtree(folder, ignore_errors=True)
        return finished


def _excess(value: float | None, base_values: Sequence[float | None]) -> float | None:
    """Return ``value`` minus the mean of ``base_values``.

    It is 0 inside the range of these values, None if unknown.
    """
    known_values = [base_value for base_value in base_values if base_value is not None]
    if value is None or not known_values:
        return None
    return 0.0 if min(known_values) <= value <= max(known_values) else value - statistics.fmean(known_values)
