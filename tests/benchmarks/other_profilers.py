"""Compare trainings that use a profiler themselves, without and with `sawtooth run`.

    python -m tests.benchmarks.other_profilers            # every pattern that this machine can run, as a table
    python -m tests.benchmarks.other_profilers schedule   # some patterns
    python -m tests.benchmarks.other_profilers --control  # alone twice, to leave out differences that occur without the recorder

Exit code, output (also on stderr) and event_counts files must be the same. The script needs only PyTorch and this repository.
If the machine has a GPU, the trainings use it. "CUPTI taken" is simulated by the environment variable that Nsight Systems
sets.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.other_profiler_patterns import NONE, PATTERNS, POSTPONED, START, TAKEN, Pattern, missing_requirement
from tests.support.forked_torch import server
from tests.support.paths import ROOT

RECORDER = [sys.executable, "-c", "from sawtooth.ingest.capture.commands import main; main()", "run"]
MAX_TRAINING_S = 300  # Longest time of one training.
SERVER_OPTIONS = ("--no-sample", "--no-loader", "--after", "3600")  # The forks are recorded, and the server is not.
T = TypeVar("T")


def event_counts(folder: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return the number of events of each name in each trace that the training wrote."""
    found = {}
    for path in sorted(folder.rglob("theirs*")):
        if path.is_dir() or ".json" not in path.name:
            continue
        if path.suffix == ".gz":
            import gzip

            text = gzip.decompress(path.read_bytes())
        else:
            text = path.read_bytes()
        about = json.loads(text)
        events = about.get("traceEvents")
        if events is None:
            names = Counter(("node", node["name"]) for node in about["nodes"])
        else:
            kinds = ("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
            names = Counter((event["cat"], event["name"]) for event in events if event.get("cat") in kinds)
        found[str(path.relative_to(folder))] = names
    return found


@dataclass(frozen=True)
class Outcome:
    code: int
    same_output: bool
    same_files: bool
    files: int
    profile: str
    answer: str
    errors: str  # Lines on the training's stderr that differ.
    varying: int = 0  # Number of names and lines that also differ between two runs without the recorder.

    def is_right(self, pattern: Pattern) -> bool:
        """Return whether nothing changed and the recorder's profile has the expected outcome."""
        same = self.same_output and self.same_files and not self.errors
        profiles = (TAKEN, POSTPONED) if pattern.or_postponed else (pattern.profile,)
        return self.code == pattern.exit_code and same and self.profile in profiles


def compare(
    pattern: Pattern, folder: Path, alone_by: str = sys.executable, recorded_by: str = sys.executable, *, control: bool = False
) -> Outcome:
    """Run a pattern without and with the recorder, in folders below ``folder``.

    ``alone_by`` and ``recorded_by`` are the commands that run a script. With ``control`` it runs alone a second time.
    """
    alone, recorded, again = folder / "alone", folder / "recorded", folder / "again"
    for run_folder in (alone, recorded, *[again][:control]):
        run_folder.mkdir()
        (run_folder / "train.py").write_text(START + pattern.script + "\n", encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **pattern.environment}
    recorder = [*RECORDER, "-o", "run.sawtooth", "--no-sample", "--after", "0.001"]
    plain = _run([alone_by, "train.py"], alone, variables)
    completed = _run([*recorder, "--steps", str(pattern.steps), recorded_by, "train.py"], recorded, variables)
    if not (recorded / "run.sawtooth").exists():
        raise RuntimeError(f"no file was recorded: {completed.stderr} {_errors(recorded)}")
    one, other = event_counts(alone), event_counts(recorded)
    repeated = _run([alone_by, "train.py"], again, variables) if control else plain
    traces, errors = (event_counts(again), _errors(again)) if control else (one, _errors(alone))
    varying = {
        "output": _different_items(_printed_items(plain.stdout), _printed_items(repeated.stdout)),
        "errors": _different_items(_errors(alone), errors),
        **{name: _different_items(one.get(name, Counter()), traces.get(name, Counter())) for name in one | traces},
    }
    if plain.returncode != pattern.exit_code:
        raise RuntimeError(f"the training alone ended with exit code {plain.returncode}: {_errors(alone)} {plain.stderr}")
    return Outcome(
        completed.returncode,
        not _different_items(_printed_items(plain.stdout), _printed_items(completed.stdout)) - varying["output"],
        one.keys() == other.keys() and not any(_different_items(one[name], other[name]) - varying[name] for name in one),
        len(one),
        _profile_outcome(recorded / "run.sawtooth", completed.stderr),
        completed.stderr,
        _stderr_difference(
            *(
                Counter({line: found[line] for line in found.keys() - varying["errors"]})
                for found in (_errors(alone), _errors(recorded))
            )
        ),
        sum(map(len, varying.values())),
    )


def _printed_items(text: str) -> Counter[str]:
    """Return the printed lines and, of printed lists of counts, each count."""
    return Counter(part for line in text.splitlines() for part in re.split(r"(?<=\)), (?=\()", line.strip("[]")))


def _different_items(one: Counter[T], other: Counter[T]) -> set[T]:
    return {name for name in one | other if one[name] != other[name]}


def _errors(run_folder: Path) -> Counter[str]:
    """Return the lines that the training in this folder wrote to stderr, for comparison.

    Times, process numbers and the text of our own capture are removed.
    """
    lines = (run_folder / "stderr.txt").read_text().splitlines() if (run_folder / "stderr.txt").exists() else []
    return Counter(
        re.sub(r"\d+", "0", line.replace(str(run_folder), "")) for line in lines if not line.startswith("sawtooth: ")
    )


def _stderr_difference(alone: Counter[str], recorded: Counter[str]) -> str:
    """Return the lines that are missing or new.

    Lines that Kineto prints for every profile, also for ours, are ignored.
    """
    lost = [
        line for line in alone - recorded if "External init callback" not in line
    ]  # Kineto prints this line for the first profile on another thread.
    new = [line for line in recorded - alone if not (line.startswith("USDT") and line in alone)]
    return "\n".join([*(f"lost: {line}" for line in lost), *(f"new: {line}" for line in new)])


def _run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=MAX_TRAINING_S, check=False
    )


def _profile_outcome(bundle: Path, answer: str) -> str:
    import zipfile

    with zipfile.ZipFile(bundle) as archive:
        kinds = {about["kind"] for about in json.loads(archive.read("manifest.json"))["runs"][0]["recordings"]}
    return NONE if "trace" not in kinds else POSTPONED if "The profile began only after step" in answer else TAKEN


@contextmanager
def forked(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands that run a script without and with the recorder.

    They use forks of two processes that have imported PyTorch.
    """
    folders = folder / "alone", folder / "recorded"
    for run_folder in folders:
        run_folder.mkdir()
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        server(folders[0], variables) as alone,
        server(folders[1], variables, *RECORDER, *SERVER_OPTIONS) as recorded,
    ):
        yield alone.ready(), recorded.ready()


def _is_right(name: str, by: Sequence[str], answers: bool, control: bool) -> bool:
    """Compare a pattern and print its row."""
    pattern = PATTERNS[name]
    missing = missing_requirement(pattern)
    if missing is not None:
        print(f"| {name} | not run: {missing} | | | | | | |", flush=True)
        return True
    with tempfile.TemporaryDirectory() as folder:
        try:
            completed = compare(pattern, Path(folder), *by, control=control)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"| {name} | {str(error)[:900]} | | | | | | no |", flush=True)
            return False
    right, words = completed.is_right(pattern), ["no", "yes"]
    same = words[completed.same_output], words[not completed.errors], f"{words[completed.same_files]} ({completed.files})"
    print(
        "|",
        " | ".join((name, str(completed.code), *same, str(completed.varying), completed.profile, words[right])),
        "|",
        flush=True,
    )
    if answers or not right:
        print(completed.answer, completed.errors, file=sys.stderr, flush=True)
    return right


def main() -> None:
    """Print a table; exit with 1 if a pattern is not as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="parts of names; all if none")
    parser.add_argument("--forked", action="store_true", help="import PyTorch once, as the tests do; not on a GPU")
    parser.add_argument("--control", action="store_true", help="run alone twice, and do not compare what differs between these")
    parser.add_argument("--answers", action="store_true", help="also print the recorder's messages")
    options = parser.parse_args()
    print(
        "| pattern | exit code | same stdout | same stderr | same files | varies alone | our profile | as expected |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    named = [name for name in PATTERNS if not options.patterns or any(part in name for part in options.patterns)]
    with tempfile.TemporaryDirectory() as folder, forked(Path(folder)) if options.forked else nullcontext(()) as by:
        wrong = sum([not _is_right(name, by, options.answers, options.control) for name in named])
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
