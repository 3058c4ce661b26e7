"""Try every damage on many recordings with random choices: `python -m tests.incomplete --most 1000`."""

from __future__ import annotations

import gzip
import json
import random
import signal
import time
from functools import cache
from itertools import product
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from sawtooth.analysis.run.model import RunResult
from tests.incomplete.claims import Outcome, analysed, outcome
from tests.incomplete.damage import damaged, every_damage
from tests.support.paths import ROOT

Trial = tuple[str, str, int]  # Name of the recording, damage, seed.


def main(
    most: Annotated[int, typer.Option(help="how many damaged recordings to analyse, drawn from all")] = 1000,
    only: Annotated[str, typer.Option(help="a word in the damages to try")] = "",
    recordings: Annotated[str, typer.Option(help="recordings of tests/recordings, separated by commas; default: all")] = "",
    draw: Annotated[int, typer.Option(help="seed of the random choice of recordings, damages and events")] = 1,
    log: Annotated[
        Path | None, typer.Option(help="file that gets a line for each result; a later run with it continues there")
    ] = None,
) -> None:
    """Print each value that is trusted and wrong, and end with 1 if there is any.

    The order is random, so a stopped run (SIGINT, SIGTERM) has tried a fair sample. A stopped run finishes its recording and
    prints the number of results.
    """
    outcomes = {} if log is None else _logged(log)
    begun = time.monotonic()
    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    for trial in _drawn(most, only, recordings, draw):
        if stopped.is_set():
            break
        if trial not in outcomes:
            outcomes[trial] = _tried(trial)
            if outcomes[trial].wrong:
                print(f"{trial[0]}, {trial[1]}, seed {trial[2]}: {'; '.join(outcomes[trial].wrong)}", flush=True)
            if log is not None:
                with log.open("a") as lines:
                    print(json.dumps([*trial, outcomes[trial]]), file=lines)
    wrong = sum(bool(tried.wrong) for tried in outcomes.values())
    print(
        f"{len(outcomes)} damaged recordings, the last after {time.monotonic() - begun:.0f} s. {wrong} have a number trusted and wrong."
    )
    print(
        f"Refused: {sum(tried.refused for tried in outcomes.values())}. "
        f"Withheld or doubted, of the numbers that the intact report trusts: all {sum(tried.all_doubted for tried in outcomes.values())}, "
        f"some {sum(tried.some_doubted for tried in outcomes.values())}."
    )
    raise typer.Exit(1 if wrong else 0)


def _drawn(most: int, only: str, recordings: str, draw: int) -> list[Trial]:
    """Return recordings and damages in the order in which they are tried."""
    names = sorted(path.parent.name for path in (ROOT / "tests" / "recordings").glob("*/trace.json.gz"))
    names = [name for name in names if not recordings or name in recordings.split(",")]
    damages = [name for name in every_damage() if only in name]
    seeds = range(1 + most // max(len(names) * len(damages), 1))
    every = list(product(seeds, names, damages))
    drawn = random.Random(draw).sample(every, min(most, len(every)))
    return [(name, damage, 1000 * (draw - 1) + seed + 1) for seed, name, damage in drawn]


@cache
def _intact(name: str) -> tuple[bytes, RunResult | None]:
    text = gzip.decompress((ROOT / "tests" / "recordings" / name / "trace.json.gz").read_bytes())
    return text, analysed([("t.json", text)])


def _tried(trial: Trial) -> Outcome:
    text, right = _intact(trial[0])
    return outcome(right, analysed([("t.json", damaged(text, *trial[1:]))]))


def _logged(log: Path) -> dict[Trial, Outcome]:
    """Return the results that the log has."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {(name, damage, seed): Outcome(*result) for name, damage, seed, result in lines}


if __name__ == "__main__":
    typer.run(main)
