"""The child process of a job, which ``sawtooth.app.jobs.queue`` starts.

Command: ``python -m sawtooth.app.jobs.child FOLDER``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from sawtooth.analysis.derive.screen_sums import ensure_sums
from sawtooth.analysis.result_cache import cached_result, result_of, stairs_of, work_of
from sawtooth.analysis.run.preview import TracePreview
from sawtooth.analysis.store.library import Library
from sawtooth.app.format import clean
from sawtooth.app.jobs.ingest_files import LEFT_UNCHANGED, ingest_into_runs
from sawtooth.app.jobs.job_files import JobOutcome, JobProgress, JobRequest, Stage
from sawtooth.app.runs.card import card_of
from sawtooth.app.words.run import preview
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.recording import IngestProgress as IngestProgress
from sawtooth.ingest.runs.manifests import add_tags, edit_run
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

REPORT_INTERVAL_S = 0.2  # Five updates per second look smooth. More would only add disk writes.

MAX_MEMORY_SHARE = 0.75  # Share of the machine's memory. The server and its pages need the rest.
# Smallest limit of the address space. DuckDB, Arrow and thread stacks reserve about 2 GiB of addresses before any work.
MIN_ADDRESS_BYTES = 3 << 30
MAX_PROCESSOR_S = 2 * 3600  # The deadline of sawtooth.app.jobs.queue. The server may be unable to stop this process.
MAX_FILE_BYTES = 64 << 30  # A recording is smaller than its source.
MAX_OPEN_FILES = 256  # A job needs about twelve.


def main(folder: Path) -> int:
    """Run the job in ``folder`` and write ``result.json`` there; return the exit status."""
    _end_with_server()
    _limit_this_process()
    order = from_json((folder / "job.json").read_bytes(), JobRequest)
    try:
        outcome = run(order, lambda progress: _write(folder / "progress.json", progress))
    except SawtoothError as error:
        prefix = f"{clean(error.file or '', 80)}: " if error.other_errors else ""
        outcome = JobOutcome(code=error.code, sentence=f"{prefix}{error}", notices=_left_out(error.other_errors))
    except MemoryError:
        outcome = JobOutcome(
            code="E-MEMORY",
            sentence="There is not enough memory to read this file. Profile fewer steps, or use a machine with more memory.",
        )
    except OSError as error:
        outcome = JobOutcome(code="E-DISK", sentence=_disk_sentence(error))
    _write(folder / "result.json", outcome)
    _store_sums(DataFolder(Path(order.data)), outcome.run_ids)
    return 1 if outcome.sentence else 0


def run(order: JobRequest, report: Callable[[JobProgress], None]) -> JobOutcome:
    """Read the files of ``order`` into its data folder, make runs of them and analyse them.

    ``report`` receives the progress. A file that cannot be read becomes a notice if another file can be read. If no file can be
    read, the first error is raised.
    """
    folder = DataFolder(Path(order.data)).create()
    if order.analyse:
        report(JobProgress("deriving", runs=order.analyse))
        _store_analyses(folder, order.analyse)
        return JobOutcome(order.analyse)
    files = [(Path(file.path), file.name) for file in order.files]
    users_runs = {manifest.id: manifest for manifest in folder.manifests() if not manifest.bundled} if order.bundled else {}
    job_progress = _SteadyProgress(order, report)
    ingested = ingest_into_runs(
        folder,
        files,
        separate=order.separate,
        keep_source=order.keep_source,
        name=order.name or None,
        tolerant=True,
        progress=job_progress.update,
        on_first_look=job_progress.report_first_look,
    )
    if order.bundled:
        for manifest in ingested.runs:
            edit_run(folder, manifest.id, partial(_as_bundled, order.created_ns, users_runs.get(manifest.id)))
    names = {manifest.id: manifest.name for manifest in ingested.runs}  # A bundle may contain a run twice.
    for run_id in names if order.tags else []:
        add_tags(folder, run_id, order.tags)
    runs = list(names)
    report(JobProgress("deriving", 1.0, runs=runs, seen=job_progress.preview))
    notices = _left_out(ingested.refused) + [clean(sentence, 400) for sentence in ingested.notices]
    notices += [f"{clean(names[run_id], 80)} {LEFT_UNCHANGED} The Runs page shows both." for run_id in ingested.proposals]
    for run_id, name in names.items():
        try:
            _store_analyses(folder, [run_id])
        except SawtoothError:  # The run's page shows this error.
            continue
        except Exception:  # A bug in the analysis must not hide the runs, which are complete.
            notices.append(f"{clean(name, 80)} was read, but its analysis failed. This is a bug in Sawtooth.")
    return JobOutcome(runs, notices=notices)


def _left_out(refused: Sequence[str]) -> list[str]:
    return [f"Left out {clean(sentence, 400)}" for sentence in refused]


def _as_bundled(created_ns: int, users_run: Manifest | None, run: Manifest) -> Manifest:
    """Return ``run`` as an example; the user's own run if the user had already imported its files."""
    return users_run or msgspec.structs.replace(run, bundled=True, created_ns=created_ns or run.created_ns)


def _store_analyses(folder: DataFolder, runs: list[str]) -> None:
    """Analyse the runs in this process and store the results for pages and cards.

    Raises SawtoothError for the first run that fails.
    """
    with Library(folder) as library:
        for run in runs:
            manifest = folder.read_manifest(run)
            stairs_of(library, result_of(manifest, library))
            card_of(manifest, library)
            if cached_result(manifest, folder) is None:
                raise SawtoothError(
                    "The analysis of this run could not be stored. Free some space on the server's disk, then open the run again."
                )


def _store_sums(folder: DataFolder, runs: list[str]) -> None:
    """Store the sums that only screens read while the user reads the answer.

    If this fails, the first screen that needs the sums stores them.
    """
    with contextlib.suppress(SawtoothError, MemoryError, OSError), Library(folder) as library:
        for run in runs:
            manifest = folder.read_manifest(run)
            for ref in manifest.traces:
                ensure_sums(folder, ref.id)
            result = cached_result(manifest, folder)
            if result is not None and result.withdrawn_by is None:
                work_of(library, result)


class _SteadyProgress:
    """The progress of a job, computed from the progress of its files and reported a few times per second."""

    def __init__(self, order: JobRequest, report: Callable[[JobProgress], None]) -> None:
        self._report = report
        self._sizes = [file.bytes for file in order.files]
        self._total = max(sum(self._sizes), 1)
        self._files_done = 0
        self._events_before = 0
        self._reported_s = 0.0
        self._latest = JobProgress("reading")
        self.preview = ""

    def update(self, name: str, progress: IngestProgress) -> None:
        """Report the progress of the job by the progress of the file ``name``."""
        now_s = time.monotonic()
        if now_s - self._reported_s < REPORT_INTERVAL_S and progress.stage == "reading":
            return
        self._reported_s = now_s
        index = min(self._files_done, len(self._sizes) - 1)
        read_bytes = sum(self._sizes[:index]) + self._sizes[index] * progress.bytes_done / max(progress.bytes_total, 1)
        stage: Stage = "deriving" if progress.stage in ("linking", "keeping", "done") else "reading"
        events = self._events_before + progress.events
        self._latest = JobProgress(stage, min(read_bytes / self._total, 1.0), name, events, seen=self.preview)
        self._report(self._latest)
        if progress.stage == "done":
            self._files_done += 1
            self._events_before += progress.events

    def report_first_look(self, look: TracePreview) -> None:
        """Report what is known about the last trace before its analysis."""
        self.preview = preview(look)
        self._report(msgspec.structs.replace(self._latest, seen=self.preview))


def _disk_sentence(error: OSError) -> str:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk of this server is full, so the file was not stored. Free some space, then drop the file again."
    return (
        f"The server could not write the recording ({os.strerror(error.errno) if error.errno else 'input or output failed'})."
    )


def _write(path: Path, content: msgspec.Struct) -> None:
    write_atomically(path, msgspec.json.encode(content))


def _end_with_server() -> None:
    """End this process when the server ends, which closes the standard input of this process."""
    if sys.stdin is None or sys.stdin.isatty():
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):  # This thread would hold the lock of sys.stdin at exit, and Python would abort.
                pass
        os._exit(3)

    threading.Thread(target=wait, daemon=True).start()


def _limit_this_process() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits; the deadline of sawtooth.app.jobs.queue remains.
        return
    import psutil

    max_memory = max(MIN_ADDRESS_BYTES, int(psutil.virtual_memory().total * MAX_MEMORY_SHARE))
    limits = (
        (resource.RLIMIT_AS, max_memory),
        (resource.RLIMIT_CPU, MAX_PROCESSOR_S),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, limit in limits:
        hard = resource.getrlimit(kind)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS.
            resource.setrlimit(kind, (value, hard if kind == resource.RLIMIT_CPU else value))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")  # If memory runs out, the kernel kills this process, not the server.
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)  # Pages have priority.


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
