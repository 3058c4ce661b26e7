"""Make twenty runs of a million events, each from another recording.

python -m tests.load.prepare --data FOLDER [--runs 20] [--events 1000000]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.schema import DataFolder
from tests.benchmarks.scaled_trace import write
from tests.support.paths import RECORDINGS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    folder = DataFolder(options.data.absolute()).create()
    library = Library(folder)
    existing = {manifest.name: manifest for manifest in folder.manifests()}
    traces = sorted(RECORDINGS.glob("*/trace.json.gz"))[: options.runs]
    for trace in traces:
        name, start = f"load-{trace.parent.name}", time.monotonic()
        if name in existing:
            card_of(existing[name], library)  # The code of the analysis may have changed since.
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        else:
            scaled = folder.uploads / f"{name}.json.gz"
            events = write(trace, scaled, options.events)
            (run,) = ingest_into_runs(folder, [(scaled, scaled.name)], keep_source=False, name=name).runs
            scaled.unlink()
            card_of(run, library)
            print(f"{name}: {events} events, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
