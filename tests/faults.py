"""Inject random faults for a given time and check that no run is lost and no number is wrong.

    python -m tests.faults [--seconds 600] [--seed 1]

Each round injects one of these faults:
- a job's child process is killed at a random moment
- the disk is full after a share of the bytes that a job needs (as root on a real file system, else by a limit on the size of files)
- few files can be opened
- bytes are damaged or cut off in a recording, a derived file, a cached analysis or a manifest
- a server is killed at a random moment during a job, while a second server runs on the same folder
- ten mutated files are read (tests.fuzz)

After each fault, old runs must have the same numbers, and no item may be published incompletely. A damaged item must be
reported, or must still give the right numbers. With the same seed, the faults are the same but happen at other moments. The
exit code is 1 if a run was lost or a number was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psutil

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs import leftovers
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder
from tests.fuzz.ingest import corpus, mutated, outcome
from tests.support import fault_stage as stage
from tests.support.fault_stage import bytes_in, small_disk
from tests.support.servers import reports, start_job, start_server, until, without_bundled

SHARES = (0.0, 0.3, 0.5, 0.9, 0.99)
ROUNDS = {"damage": 10, "kill": 3, "disk": 2, "files": 1, "inputs": 3, "server": 1}  # Number of each fault in twenty rounds.


def shown(folder: DataFolder, run: str, library: Library) -> Any:
    """Return the data that pages show of a run: its card, and its report from the cached analysis."""
    manifest = folder.read_manifest(run)
    return msgspec.to_builtins(card_of(manifest, library)), json.loads(json.dumps(report_json(result_of(manifest, library))))


class Faults:
    """Intact data folders with an old and a new run, and their numbers; each round uses a copy."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self.chance = root, chance
        self.traces = stage.trace_in(root / "old.json.gz", 20), stage.trace_in(root / "new.json.gz", 300)
        self.old_only, self.both = DataFolder(root / "old").create(), DataFolder(root / "both").create()
        self.old = stage.ingest(self.old_only, self.traces[0]).id
        shutil.copytree(self.old_only.root, self.both.root, dirs_exist_ok=True)
        self.new = stage.ingest(self.both, self.traces[1]).id
        library = Library(self.both)
        self.wanted = {run: shown(self.both, run, library) for run in (self.old, self.new)}
        library.close()
        self.needs = bytes_in(self.both.root, but=".msgpack") - bytes_in(self.old_only.root, but=".msgpack")
        self.seeds = corpus()
        self.faults, self.inputs, self.reported, self.lost, self.wrong = Counter[str](), 0, 0, 0, 0

    def copy(self, pristine: DataFolder, to: Path) -> DataFolder:
        shutil.copytree(pristine.root, to, dirs_exist_ok=True)
        return DataFolder(to)

    def judge(self, folder: DataFolder, run: str, library: Library, may_be_reported: bool = False) -> None:
        """Count missing runs and wrong numbers; a damaged run may report its damage instead."""
        try:
            if shown(folder, run, library) != self.wanted[run]:
                self.wrong += 1
                print(f"wrong numbers of {run}")
        except SawtoothError as error:
            if may_be_reported:
                self.reported += 1
            else:
                self.lost += 1
                print(f"lost {run}: {error}")

    def after(self, folder: DataFolder) -> None:
        """Check the state after a fault, then ingest the new trace."""
        library = Library(folder)
        self.judge(folder, self.old, library)
        stage.ingest(folder, self.traces[1])
        self.judge(folder, self.new, library)
        self.judge(folder, self.old, library)
        library.close()
        stage.check_complete(folder)

    def kill(self, place: Path) -> None:
        folder = self.copy(self.old_only, place / "data")
        with stage.start(self.traces[1], folder) as process:
            time.sleep(self.chance.uniform(0.3, 3.0))  # The process must be killed at a random moment.
            process.kill()
        stage.check_complete(folder)
        self.after(folder)

    def files(self, place: Path) -> None:
        folder = self.copy(self.old_only, place / "data")
        with stage.start(self.traces[1], folder, most_files=self.chance.randrange(8, 65)) as process:
            words = process.stdout.read().split()
        assert words and (words[-1].startswith("E-") or self.new in words), words
        self.after(folder)

    def disk(self, place: Path) -> None:
        share = self.chance.choice(SHARES)
        if os.getuid():
            folder = self.copy(self.old_only, place / "data")
            with stage.start(self.traces[1], folder, most_bytes=4096 + int(share * self.needs / 3)) as process:
                process.stdout.read()
            self.after(folder)
            return
        with small_disk(place / "disk", 64 << 20) as disk:
            folder = self.copy(self.old_only, disk / "data")
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            (disk / "ballast").write_bytes(bytes(free - int(share * self.needs)))
            with contextlib.suppress(SawtoothError):
                stage.ingest(folder, self.traces[1])
            assert stage.leftovers(folder) == []
            (disk / "ballast").unlink()
            self.after(folder)

    def damage(self, place: Path) -> None:
        """Damage one file of the new run while a server's library has it open."""
        folder = self.copy(self.both, place / "data")
        library = Library(folder)
        if self.chance.random() < 0.5:  # The run may already be open when it is damaged.
            self.judge(folder, self.new, library)
        own = [self.new, *(ref.id for ref in folder.read_manifest(self.new).recordings)]
        files = sorted(path for path in folder.root.rglob("*") if path.is_file() and path.name[:16] in own)
        spoil(self.chance.choice(files), self.chance)
        self.judge(folder, self.new, library, may_be_reported=True)
        self.judge(folder, self.new, library, may_be_reported=True)  # The first call has already replaced a damaged cache.
        self.judge(folder, self.old, library)
        stage.ingest(folder, self.traces[1])
        self.judge(folder, self.new, library)
        library.close()

    def inputs_(self, place: Path) -> None:
        for _ in range(10):
            self.inputs += 1
            outcome(mutated(self.chance, self.seeds), place)

    def server(self, place: Path) -> None:
        folder = self.copy(self.old_only, without_bundled(place / "data"))
        first, second = start_server(folder.root), start_server(folder.root)
        try:
            before = reports(first)
            start_job(first, self.traces[1])
            children = until(lambda: psutil.Process(first.process.pid).children())
            time.sleep(self.chance.uniform(0, 4))
            first.process.send_signal(signal.SIGKILL)
            psutil.wait_procs(children, timeout=30)
            after = reports(second)
            self.lost += len(before.keys() - after.keys())
            self.wrong += sum(after[run] != before[run] for run in before.keys() & after.keys())
        finally:
            first.stop(), second.stop()
        leftovers.remove_leftovers(folder.uploads, time.time())  # The next server does this when it starts.
        self.after(folder)

    def round(self, kind: str) -> None:
        place = Path(tempfile.mkdtemp(dir=self.root))
        getattr(self, "inputs_" if kind == "inputs" else kind)(place)
        shutil.rmtree(place, ignore_errors=True)


def spoil(path: Path, chance: random.Random) -> None:
    """Damage 32 bytes of a file or cut it off, in place or as a new file with the same name."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    if chance.random() < 0.3:
        del content[at:]
    else:
        content[at : at + 32] = chance.randbytes(len(content[at : at + 32]))
    if chance.random() < 0.5:
        path.unlink()
    path.write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=ROUNDS)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="sawtooth-faults-"))
    faults, failures = Faults(root, random.Random(options.seed)), 0
    plan = [options.only] if options.only else [kind for kind, times in ROUNDS.items() for _ in range(times)]
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        faults.chance.shuffle(plan)
        for kind in plan:
            if time.monotonic() > end:
                break
            try:
                faults.round(kind)
            except Exception:
                failures += 1
                print(f"{kind} failed:")
                traceback.print_exc()
            if kind != "inputs":
                faults.faults[kind] += 1
    shutil.rmtree(root, ignore_errors=True)
    print(
        f"{faults.inputs} inputs, {faults.faults.total()} faults ({dict(faults.faults)}): {faults.reported} damages reported, "
        f"{faults.lost} runs lost, {faults.wrong} wrong numbers, {failures} other failures; seed {options.seed}"
    )
    return 1 if failures or faults.lost or faults.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
