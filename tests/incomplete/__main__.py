"""Try every damage on many recordings, several times by chance: `python -m tests.incomplete --most 1000`."""

from __future__ import annotations

import gzip
import random
import signal
import time
from contextlib import suppress
from itertools import product
from typing import Annotated

import typer

from tests.incomplete.claims import analysed, trusted_and_wrong
from tests.incomplete.damage import damaged, every_damage
from tests.support.paths import ROOT


def main(
    most: Annotated[int, typer.Option(help="how many damaged recordings to analyse, drawn from all")] = 1000,
    only: Annotated[str, typer.Option(help="a word in the damages to try")] = "",
    recordings: Annotated[
        str, typer.Option(help="recordings of tests/recordings, separated by commas; all where none is named")
    ] = "",
    draw: Annotated[int, typer.Option(help="seed: each draws other recordings, damages and events")] = 1,
) -> None:
    """Print what is trusted and wrong, a line each, and end with 1 where there is any.

    The order is by chance, so a run that is stopped (SIGINT, SIGTERM) has tried a fair part, and says how large it was.
    """
    folders = sorted(path.parent for path in (ROOT / "tests" / "recordings").glob("*/trace.json.gz"))
    folders = [folder for folder in folders if not recordings or folder.name in recordings.split(",")]
    names = [name for name in every_damage() if only in name]
    begun, tried, wrong, refused = time.monotonic(), 0, 0, 0
    right = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seeds = range(1 + most // max(len(folders) * len(names), 1))
    every = list(product(seeds, folders, names))
    with suppress(KeyboardInterrupt):
        for seed, folder, name in random.Random(draw).sample(every, min(most, len(every))):
            text = gzip.decompress((folder / "trace.json.gz").read_bytes())
            if folder not in right:
                right[folder] = analysed([("t.json", text)])
            result, tried = analysed([("t.json", damaged(text, name, 1000 * (draw - 1) + seed + 1))]), tried + 1
            refused += result is None
            claims = list(trusted_and_wrong(right[folder], result)) if right[folder] is not None else []
            wrong += bool(claims)
            if claims:
                print(f"{folder.name}, {name}, seed {1000 * (draw - 1) + seed + 1}: {'; '.join(claims)}", flush=True)
    print(
        f"{tried} damaged recordings in {time.monotonic() - begun:.0f} s: {refused} refused, {wrong} with a number trusted and wrong"
    )
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
