"""Flip single bits in a data folder.

Each flip must be reported, or change nothing that the product reads.

    python -m tests.fuzz.bits [--flips 1000] [--seed 1]

The folder has a run with telemetry and step marks, a job with the summaries of its ranks, a bundle's proposals, cached
analyses, measurements of a GPU, a tested prediction, a pushed session, a login and both tokens. After each flip the
product reads the whole folder: report, card, proposal, trace, session, login. A flip is reported by one of our
errors, a diagnostic, a line in the log or a login that has ended. Everything else must be as before. A
difference that is not reported is printed, and the run ends with code 1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sawtooth.analysis.cluster.mapping import SUFFIX
from sawtooth.analysis.cluster.storage import storage_at
from sawtooth.analysis.cluster.summary import pack
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.compare import prediction_record
from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store import calibration
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.jobs.whole_job import ingest_job
from sawtooth.app.runs.card import card_of
from sawtooth.app.server.sessions import Sessions
from sawtooth.app.server.tokens import VIEWERS, stored_token
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.receiver import Receiver, clock_offset_ns
from sawtooth.ingest.runs.proposals import Proposal, list_changes, proposal_for, propose
from sawtooth.ingest.sampler.segments import SegmentWriter
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.session import SessionReader
from tests.fuzz import summaries
from tests.support import sound_trace

SESSION, LOGIN, PUSH = "pushed", "a-login-of-this-fuzz", "push_token"
Readings = dict[str, Any]


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def fill(folder: DataFolder) -> tuple[str, str]:
    """Fill the folder, and return the ids of the run and of the job."""
    trace = folder.root.parent / "trace.json.gz"
    trace.write_bytes(gzip.compress(sound_trace.text(sound_trace.sound(sound_trace.sound_events(40)))))
    telemetry = folder.root.parent / "nvml.jsonl"
    lines = [{"t_ns": sound_trace.BASE + i * 10**8, "gpu_util": 50 + i, "mem_used": 5} for i in range(40)]
    telemetry.write_text("\n".join(map(json.dumps, lines)))
    marks = folder.root.parent / "run.marks.jsonl"
    rows = ({"i": i, "w": sound_trace.BASE - 10**9 + i * 5 * 10**7, "b": 8} for i in range(60))
    marks.write_text("\n".join([json.dumps({"k": "marks", "v": 1}), *map(json.dumps, rows)]))
    (run,) = ingest_into_runs(folder, [(path, path.name) for path in (trace, telemetry, marks)]).runs
    ranks = folder.root.parent / "ranks"
    for number, row in enumerate(summaries.rows()):
        storage_at(str(ranks)).write(f"{number}{SUFFIX}", pack([row]))
    job_run = ingest_job(folder, str(ranks), sources=[tempfile.gettempdir()]).manifest
    propose(folder, Proposal(run.id, "a bundle", [], name="another name", notes="notes"))
    source = folder.root.parent / "sampled"
    start = sound_trace.BASE
    meta = {"v": 1, "session": SESSION, "host": "node7", "started_m": 0, "started_w": start, "interval_ns": 10**8}
    device = {"device": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 100e9}
    writer = SegmentWriter(source, {**meta, "columns": ["power_w"], "devices": [device], "name": "my job", "pid": 1})
    for i in range(50):
        writer.write({"k": "tick", "m": i * 10**8, "w": start + i * 10**8, "g": [[100.0 + i]]})
    writer.sync(0)
    receiver = Receiver(folder.live)
    for number, path in enumerate([source / "meta.json", *sorted(source.glob("samples-*"))]):
        receiver.append(SESSION, number, 0, path.read_bytes())
    receiver.note_clock(SESSION, 123_456_789)
    calibration.keep(folder, "NVIDIA H200", (1.1, 1.3, 1.5))
    prediction_record.remember(folder, run.id, "another", Prediction(("missing_compile",), 10.0, 12.5))
    stored_token(folder.root, VIEWERS, "The token")
    stored_token(folder.root, PUSH, "The push token")
    return run.id, job_run.id


def login(folder: DataFolder) -> str:
    sessions = Sessions(folder.access)
    return sessions.open(sessions.new("token", "a browser", "192.0.2.1", None, None))


def readings(folder: DataFolder, run: str, whole_job: str, cookie: str) -> Readings:
    """Read the whole folder. One of our errors counts as a reading."""
    library = Library(folder)
    reads: dict[str, Callable[[], Any]] = {
        "report": lambda: json.loads(json.dumps(report_json(result_of(folder.read_manifest(run), library)))),
        "job": lambda: _job(folder.read_manifest(whole_job), library),
        "manifest": lambda: msgspec.to_builtins(folder.read_manifest(run)),
        "card": lambda: msgspec.to_builtins(card_of(folder.read_manifest(run), library)),
        "proposal": lambda: _proposal_text(folder, run),
        "sources": lambda: {path.name: zlib.crc32(gzip.decompress(path.read_bytes())) for path in folder.sources.iterdir()},
        "session": lambda: _session(folder),
        "clock": lambda: clock_offset_ns(folder.live / SESSION),
        "calibration": lambda: repr(calibration.dispatch_of(folder, "NVIDIA H200")),
        "predictions": lambda: repr(prediction_record.records(folder)),
        "login": lambda: msgspec.to_builtins(Sessions(folder.access).find(cookie, None, "")),
        "tokens": lambda: [stored_token(folder.root, name, name) for name in (VIEWERS, PUSH)],
    }
    found = {}
    for name, read in reads.items():
        try:
            found[name] = read()
        except (SawtoothError, OSError, EOFError, zlib.error) as error:
            found[name] = f"told: {error}"
    library.close()
    return found


def _proposal_text(folder: DataFolder, run: str) -> Any:
    proposal = proposal_for(folder, run)
    return "told: no proposal" if proposal is None else repr(list_changes(folder.read_manifest(run), proposal))


def _job(manifest: Manifest, library: Library) -> Any:
    """Read the summaries of a job and its analysis.

    Only a new analysis reads the summaries, so they are read here too.
    """
    if manifest.summaries is None:
        return "told: no summaries"
    JobTables(library.folder.summaries_file(manifest.summaries))
    result = result_of(manifest, library)
    heat = result.communication.heat.to_dict() if result.communication and result.communication.heat is not None else None
    return [json.loads(json.dumps(report_json(result))), repr(heat)]


def _session(folder: DataFolder) -> Any:
    reader = SessionReader(folder.live / SESSION)
    records = reader.poll()
    return f"told: {reader.damaged} lines" if reader.damaged else [reader.meta, records]


def silent_changes(before: Readings, after: Readings) -> list[str]:
    """Return the names of readings that differ although no error was reported."""
    return [
        name
        for name, value in after.items()
        if value != before[name] and value is not None and not (isinstance(value, str) and value.startswith("told: "))
    ]


def main() -> int:
    """Flip one bit after the other, and read the folder after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, reported = random.Random(options.seed), LogLines()
    logging.getLogger("sawtooth").addHandler(reported)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="sawtooth-bits-") as place:
        sound, folder = Path(place) / "sound", DataFolder(Path(place) / "data").create()
        ids = (*fill(folder), login(folder))
        before = readings(folder, *ids)
        shutil.copytree(folder.root, sound)
        files = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file() and path.stat().st_size)
        print(f"{len(files)} files: {', '.join(sorted({path.parts[0] for path in files}))}", flush=True)
        for number in range(options.flips):
            shutil.rmtree(folder.root)
            shutil.copytree(sound, folder.root)
            file = files[number % len(files)]
            bit = _flip(folder.root / file, rng)
            reported.lines.clear()
            wrong = silent_changes(before, readings(folder, *ids))
            outcome = "told in the log" if reported.lines else "silent" if wrong else "told or unchanged"
            outcomes[outcome] += 1
            if outcome == "silent":
                print(f"SILENT: bit {bit} of {file} changed {', '.join(wrong)}", flush=True)
    print(f"{options.flips} flips, seed {options.seed}: {dict(outcomes)}")
    return int(outcomes["silent"] > 0)


def _flip(path: Path, rng: random.Random) -> int:
    content = bytearray(path.read_bytes())
    bit = rng.randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return bit


if __name__ == "__main__":
    sys.exit(main())
