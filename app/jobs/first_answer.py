"""The answer of the first bundled recording, shown until this machine has analysed the recording.

A test checks that the stored answer equals the analysis. ``python -m sawtooth.app.jobs.first_answer`` writes it.
"""

from __future__ import annotations

import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import msgspec

from sawtooth.app.jobs.bundled_examples import SAMPLES, bundled_recordings
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json

FILE = "answer.json"


class FirstAnswer(msgspec.Struct, frozen=True):
    """The text on the card of the recording ``name``."""

    name: str
    headline: str
    state: str


@lru_cache(maxsize=4)
def first_answer(samples: Path = SAMPLES) -> FirstAnswer | None:
    """Return the answer that ships with Sawtooth; None if it is missing or cannot be read."""
    for item in bundled_recordings(samples):
        try:
            return from_json((samples / item.name / FILE).read_bytes(), FirstAnswer)
        except (OSError, msgspec.MsgspecError):
            continue
    return None


def computed_first_answer(samples: Path = SAMPLES) -> FirstAnswer:
    """Analyse the first bundled recording with a fix, and return the answer.

    Raises SawtoothError if the recording cannot be read.
    """
    from sawtooth.analysis.store.library import Library
    from sawtooth.app.jobs.ingest_files import ingest_into_runs
    from sawtooth.app.runs.card import card_of

    item = next(item for item in bundled_recordings(samples) if item.fixed_by)
    with tempfile.TemporaryDirectory(prefix="sawtooth-") as temporary:
        folder = DataFolder(Path(temporary)).create()
        (run,) = ingest_into_runs(folder, [(path, path.name) for path in item.files], name=item.name).runs
        with Library(folder) as library:
            card = card_of(run, library)
    return FirstAnswer(item.name, card.headline, card.state)


if __name__ == "__main__":
    answer = computed_first_answer()
    (SAMPLES / answer.name / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(answer), indent=1) + b"\n")
    sys.exit(0)
