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
from sawtooth.app.trials.running import Ran, RunRequest, run
from sawtooth.app.trials.trial import MEASURED, Base, Trial
from sawtooth.ingest.capture.command.interpreter import command_with_python
from sawtooth.ingest.capture.trials.settings import TrialSettings
from sawtooth.ingest.loop.command import name_of
from sawtooth.ingest.schema import DataFolder, write_atomically

NARROW = 0.1  # Share of the gain: a trial ends when the interval of its step time is not wider than this.
BASE_NARROW = 0.02  # Share of the step: a base run ends when the interval of its step time is not wider than this.
NO_REPEAT = "This run without changes gave no step time. {why}"
PORT_TAKEN = (
    "A port of the training is still in use. The run is repeated when closed connections are gone, which takes a minute."
)


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
        self.name = name_of(command)
        self.began_s = time.time()
        self.bases: list[Base] = []
        self.trials: list[Trial] = []
        self._data, self._say = data, say
        self._folder = Path.cwd()
        self._listing = folders.listing(self._folder, data.root.resolve()) if not options.copies else {}
        self._count = 0
        self._stack = contextlib.ExitStack()
        # The path must be short, because the path of a loader's socket below it has at most 107 bytes.
        self._work = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sawtooth-try-", ignore_cleanup_errors=True))
        )

    def __enter__(self) -> TrialSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def base(self, *, first: bool = False) -> Ran:
        """Run the command without changes and store its result; the first run is also profiled and sampled."""
        least_gain = min((abs(self._gain(each)) for each in self.trials if each.measured_ms), default=None)
        half = BASE_NARROW / 2 if least_gain is None else None

        def enough(step_times: Sequence[float]) -> bool:
            mean, width = steps.mean_and_half_width(step_times)
            return width <= (half * mean if half is not None else max(NARROW * (least_gain or 0.0) / 2, BASE_NARROW / 2 * mean))

        ran = self._run({}, "base", enough, profiles=first)
        if ran.bundle is not None and ran.how in ("measured", "ended"):
            ended = time.monotonic()
            result, measured, run_id = measured_run(ran.bundle, self._data)
            if measured.best_ms is not None:
                self.bases.append(Base(ran, result, measured, run_id, time.monotonic() - ended))
                return ran
        if not first:
            self._say(NO_REPEAT.format(why=ran.why_unmeasured))
        return ran

    def try_out(self, candidates: Sequence[Candidate]) -> Trial:
        """Run the command with the changes of ``candidates``; ``decide`` judges it after the next base run."""
        trial = Trial(list(candidates), after_base=len(self.bases) - 1)
        self.trials.append(trial)
        if len(candidates) > 1:
            together = predicted_together(self.bases[0].result, self._data, candidates)
            trial.predicted_ms, trial.predicted_low_ms, trial.predicted_high_ms = together
        changes = {each.slug: each.values for each in candidates}
        base_ms = self.base_ms or 0.0

        def enough(step_times: Sequence[float]) -> bool:
            mean, width = steps.mean_and_half_width(step_times)
            return width <= NARROW / 2 * abs(base_ms - mean / trial.times_work)

        ran = self._run(changes, trial.slug, enough)
        trial.ran = ran
        trial.losses = next((list(notes["losses"]) for notes in ran.notes if notes.get("losses")), [])
        self._judge_end(trial, ran)
        return trial

    def _judge_end(self, trial: Trial, ran: Ran) -> None:
        """Read the measurement of a trial; set its status if it failed or if its changes had no effect."""
        trial.why = " ".join(filter(None, (ran.why, *ran.left)))
        if ran.how in ("out_of_memory", "failed", "hung"):
            trial.status = "out_of_memory" if ran.how == "out_of_memory" else "failed"
            return
        if ran.how == "guarded":
            trial.status, trial.why = "failed", f"The trial was ended before it changed {_changed_files(ran)}."
            return
        slugs = [each.slug for each in trial.candidates]
        unproven = [slug for slug in slugs if not ran.notes or any(slug not in notes["proofs"] for notes in ran.notes)]
        refused = next((notes["refused"][slug] for notes in ran.notes for slug in slugs if slug in notes["refused"]), "")
        errors = next((notes["errors"][0] for notes in ran.notes if notes["errors"]), "")
        trial.proof = " ".join(dict.fromkeys(proof for notes in ran.notes for proof in notes["proofs"].values()))
        if ran.bundle is not None:
            _, trial.measured, trial.run_id = measured_run(ran.bundle, self._data)
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
            trial.status, trial.why = "failed", trial.why or ran.why_unmeasured

    def decide(self) -> None:
        """Set each trial's status by the base runs before and after it, and its costs by all base runs."""
        plain = [base.ran for base in self.bases[1:]]  # without the first one, whose costs include the profiler
        for trial in self.trials:
            if trial.ran is not None and plain:
                trial.memory_mib = _excess(trial.ran.memory_mib, [ran.memory_mib for ran in plain])
                trial.start_s = _excess(trial.ran.start_s, [ran.start_s for ran in plain])
            if trial.measured is None or trial.status in ("no_effect", "failed", "out_of_memory", "by_hand"):
                continue
            beside = [base.measured for base in self.bases[trial.after_base : trial.after_base + 2]]
            measured = scale(trial.measured, 1 / trial.times_work)
            judged = judge(beside, measured, [base.measured for base in self.bases], self.drift_ms)
            trial.status = judged.word
            if judged.word == "not_shown":
                within = judged.change_ms is not None and judged.verdict.shown
                drifts = f"Without a change, the step time drifts by {fmt.duration_ms(judged.drift_ms)}."
                trial.why = drifts if within else judged.verdict.why

    @property
    def drift_ms(self) -> float:
        """The largest difference between the halves of a base run, ms."""
        both = [steps.halves(base.ran.took_ms) for base in self.bases]
        return max((abs(a - b) for a, b in filter(None, both)), default=0.0)

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

    def kept(self) -> list[Candidate]:
        """Return the kept single changes in their order; of changes that replace each other, only the fastest."""
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
            one = trial.candidates[0]
            if trial.status not in MEASURED or len(trial.candidates) > 1 or trial.times_work != 1.0:
                continue
            if trial.run_id and one.rule and one.predicted_ms and trial.measured_ms:
                pair = Prediction((one.rule,), one.predicted_ms, trial.measured_ms, one.low_ms, one.high_ms)
                remember(self._data, self.bases[0].run_id, trial.run_id, pair)

    def store(self, result: str) -> Path:
        """Store the result in the data folder under the number of the runs' tag ``try=…``; return the path."""
        path = self._data.root / "trials" / f"{int(self.began_s)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, result.encode())
        return path

    def changed_files(self) -> list[str]:
        """Return the files of the working folder that the runs changed without being noticed by the guard."""
        return folders.changed_files(self._listing, self._folder, self._data.root.resolve()) if self._listing else []

    def new_files(self) -> list[str]:
        """Return the files that the runs added to the working folder."""
        return folders.added_files(self._listing, self._folder, self._data.root.resolve()) if self._listing else []

    def _gain(self, trial: Trial) -> float:
        return (self.base_ms or 0.0) - (trial.measured_ms or 0.0) / trial.times_work

    def _run(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        what: str,
        enough: Callable[[Sequence[float]], bool],
        *,
        profiles: bool = False,
    ) -> Ran:
        ran = self._run_once(changes, what, enough, profiles=profiles)
        if ran.port_is_taken and self._count > 1:
            self._say(PORT_TAKEN)
            wait_for_closed_connections()
            ran = self._run_once(changes, what, enough, profiles=profiles)
        return ran

    def _run_once(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        what: str,
        enough: Callable[[Sequence[float]], bool],
        *,
        profiles: bool,
    ) -> Ran:
        self._count += 1
        work = self._work / str(self._count)
        place, words = self._folder, self.words
        if self.options.copies:
            place = work / "copy"
            folders.copy(self._folder, place)
            words = [folders.move_path(word, self._folder, place) for word in words]
        repeat = f" {len(self.bases) + 1}" if what == "base" and self.bases else ""
        values = ", ".join(f"{name} {value}" for each in changes.values() for name, value in each.items() if name != "kind")
        self._say(f"{self._count}. {what}{repeat}{f' ({values})' if values else ''}")
        first = self.bases[0] if self.bases else None
        ran = run(
            RunRequest(
                words,
                self.command,
                f"{self.name}, {what}{repeat}",
                place,
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
                start_s=first.ran.start_s if first is not None else None,
                profiles=profiles,
                enough=enough,
                settings_shown={"try": what},
                tags=[f"try={int(self.began_s)}", *([f"{FOLLOWS}{first.run_id}"] if first is not None and changes else [])],
            )
        )
        if self.options.copies:
            shutil.rmtree(place, ignore_errors=True)
        return ran


def _excess(value: float | None, without: Sequence[float | None]) -> float | None:
    """Return ``value`` minus the mean of ``without``; 0 if it lies within their range, None if unknown."""
    measured_ms = [each for each in without if each is not None]
    if value is None or not measured_ms:
        return None
    return 0.0 if min(measured_ms) <= value <= max(measured_ms) else value - statistics.fmean(measured_ms)


def _changed_files(ran: Ran) -> str:
    return ", ".join(dict.fromkeys(file["path"] for file in ran.files))
