"""The queue of ingest jobs, each in a child process, so that a hostile file can crash only the child.

A job is a folder ``uploads/job-<id>/`` with the files and ``job.json`` (the order). The child writes ``progress.json`` and
``result.json`` there. It limits its memory, processor time and file size, and ends when the server ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sawtooth.app.jobs.failure_sentences import DEADLINE_SECONDS, crash_sentence, unstarted_sentence
from sawtooth.app.jobs.job_files import ACTIVE, UNREADABLE, JobFile, JobOutcome, JobProgress, JobRequest, Stage
from sawtooth.app.settings import Settings
from sawtooth.ingest import children
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.schema import write_atomically
from sawtooth.ingest.typed import from_json

MAX_RUNNING = 2  # Jobs that run at the same time. A child needs about one core, and pages need the rest.
MAX_JOBS = 50  # Running and waiting jobs. This suffices for a dropped folder of ranks.
MAX_FINISHED_AGE_S = 24 * 3600  # Finished jobs remain visible for a day.


@dataclass
class IngestJob:
    """A job as users see it."""

    id: str
    files: list[JobFile]
    folder: Path
    started: float
    stage: Stage = "waiting"
    progress: JobProgress = field(default_factory=lambda: JobProgress("waiting"))
    outcome: JobOutcome = field(default_factory=JobOutcome)
    finished: float | None = None
    process: subprocess.Popen[bytes] | None = None
    analyses: tuple[str, ...] = ()
    alone: bool = False  # Whether no other job runs meanwhile.
    run_name: str = ""  # The name of the future run, if it is known.

    @property
    def active(self) -> bool:
        """Whether the job runs or waits."""
        return self.stage in ACTIVE

    @property
    def name(self) -> str:
        """The name of the run, or of its files. The text is untrusted."""
        if self.run_name:
            return self.run_name
        names = [file.name for file in self.files] or ["A run"]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def child_command(folder: Path) -> list[str]:
    """Return the command that runs one job."""
    return children.command("sawtooth.app.jobs.child", str(folder))


class Jobs:
    """The jobs of this server; all methods are thread-safe."""

    def __init__(
        self,
        settings: Settings,
        command: Callable[[Path], Sequence[str]] = child_command,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._command = command
        self._clock = clock
        self._lock = threading.RLock()
        self._jobs: dict[str, IngestJob] = {}
        self._slots = threading.BoundedSemaphore(MAX_RUNNING)
        self._slot_lock = threading.Lock()
        self._analyses = threading.BoundedSemaphore(max(MAX_RUNNING - 1, 1))  # One slot stays free for dropped files.
        self._closing = False

    def start(
        self,
        uploads: list[tuple[Path, str]],
        *,
        separate: bool = False,
        name: str = "",
        bundled: bool = False,
        created_ns: int = 0,
        alone: bool = False,
        tags: Sequence[str] = (),
    ) -> IngestJob:
        """Start a job for uploads (path, name), which are moved into the job's folder.

        With ``alone``, no other job runs meanwhile. Raises UsageError if there are no files or too many jobs.
        """
        if not uploads:
            raise UsageError("A job needs at least one uploaded file.")
        with self._lock:
            folder = self._new_folder()
            order = JobRequest(
                data=str(self.settings.data.root),
                files=_take_uploads(folder, uploads),
                keep_source=self.settings.keep_source,
                separate=separate,
                server_pid=os.getpid(),
                name=name,
                bundled=bundled,
                created_ns=created_ns,
                tags=list(tags),
            )
            return self._begin(folder, order, alone=alone)

    def analyse(self, run_id: str) -> IngestJob:
        """Return the job that analyses a large run; start one if there is none."""
        with self._lock:  # Keep the lock until the job has started, so that a simultaneous request finds this job.
            for job in self.all():
                is_ingesting = run_id in job.progress.runs and job.active
                if is_ingesting or (run_id in job.analyses and (job.active or job.stage == "failed")):
                    return job
            order = JobRequest(str(self.settings.data.root), [], server_pid=os.getpid(), analyse=[run_id])
            return self._begin(self._new_folder(), order)

    def _new_folder(self) -> Path:
        if self._closing:
            raise UsageError("This server is stopping. Try again when it has started again.")
        if sum(job.active for job in self._jobs.values()) >= MAX_JOBS:
            raise UsageError(f"{MAX_JOBS} jobs are already running or waiting. Try again when some are done.")
        self._forget_old()
        folder = self.settings.data.uploads / f"job-{secrets.token_hex(8)}"
        folder.mkdir(parents=True)
        return folder

    def _begin(self, folder: Path, order: JobRequest, *, alone: bool = False) -> IngestJob:
        write_atomically(folder / "job.json", msgspec.json.encode(order))
        job_id, analyses = folder.name.removeprefix("job-"), tuple(order.analyse)
        job = IngestJob(job_id, order.files, folder, self._clock(), analyses=analyses, alone=alone, run_name=order.name)
        self._jobs[job.id] = job
        threading.Thread(target=self._run, args=(job,), name=f"job-{job.id}", daemon=True).start()
        return job

    def get(self, job_id: str) -> IngestJob:
        """Return a job with its newest progress; raises NotFoundError if there is no such job."""
        with self._lock:
            if job_id not in self._jobs:
                raise NotFoundError(
                    f"This server has no job {job_id[:16]!r}. The server may have been restarted since. Upload the files again."
                )
            job = self._jobs[job_id]
        self._read_progress(job)
        return job

    def all(self) -> list[IngestJob]:
        """Return every job, newest first, with its newest progress."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            self._read_progress(job)
        return sorted(jobs, key=lambda job: job.started, reverse=True)

    def cancel(self, job_id: str) -> None:
        """Stop an unfinished job; recordings that the job has stored are complete and remain."""
        job = self.get(job_id)
        with self._lock:
            if job.active:
                job.stage = "cancelled"
                job.finished = self._clock()
                _stop(job.process)

    def dismiss(self, job_id: str) -> None:
        """Forget a finished job."""
        with self._lock:
            if job_id in self._jobs and not self._jobs[job_id].active:
                del self._jobs[job_id]

    def close(self) -> None:
        """Stop every child, because the server ends."""
        with self._lock:
            self._closing = True
            for job in self._jobs.values():
                if job.active:
                    job.stage = "cancelled"
                _stop(job.process)

    def _forget_old(self) -> None:
        for job in list(self._jobs.values()):
            if job.finished is not None and self._clock() - job.finished > MAX_FINISHED_AGE_S:
                del self._jobs[job.id]

    def _read_progress(self, job: IngestJob) -> None:
        if job.active and (outcome := _written_outcome(job)) is not None:  # The child may still compute sums for screens.
            self._end(job, outcome)
        if not job.active:
            return
        with contextlib.suppress(OSError, *UNREADABLE):
            progress = from_json((job.folder / "progress.json").read_bytes(), JobProgress)
            with self._lock:
                if job.active:
                    job.progress = progress
                    job.stage = progress.stage if progress.stage in ACTIVE else job.stage

    def _run(self, job: IngestJob) -> None:
        try:
            with self._analyses if job.analyses else contextlib.nullcontext(), contextlib.ExitStack() as slots:
                # Without this lock, two jobs that run alone could each get one slot and wait for the other slot forever.
                with self._slot_lock:
                    for _ in range(MAX_RUNNING if job.alone else 1):
                        slots.enter_context(self._slots)
                self._run_child(job)
        finally:
            shutil.rmtree(job.folder, ignore_errors=True)

    def _run_child(self, job: IngestJob) -> None:
        if (process := self._child(job)) is None:
            return
        try:
            code = process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            _stop(process)
            code = None
        finally:
            if process.stdin is not None:
                process.stdin.close()
        self._end(job, self._outcome(job, code))
        job.process = None

    def _child(self, job: IngestJob) -> subprocess.Popen[bytes] | None:
        """Start and return the job's child; None if the job was cancelled, or if it cannot be started."""
        with self._lock:
            if not job.active:
                return None
            job.stage = "reading"
            try:
                job.process = subprocess.Popen(
                    list(self._command(job.folder)),
                    stdin=subprocess.PIPE,  # The child ends when the server's end closes this pipe.
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=children.inherited_environment() | {"PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                self._end(job, JobOutcome(code="E-CHILD", sentence=unstarted_sentence(error)))
            return job.process

    def _end(self, job: IngestJob, outcome: JobOutcome) -> None:
        with self._lock:
            job.finished = job.finished or self._clock()
            if job.active:
                job.outcome = outcome
                job.stage = "failed" if outcome.sentence else "done"

    def _outcome(self, job: IngestJob, code: int | None) -> JobOutcome:
        self._read_progress(job)
        runs = job.progress.runs
        return _written_outcome(job) or JobOutcome(runs, "E-CHILD", crash_sentence(code, has_runs=bool(runs)))


def _written_outcome(job: IngestJob) -> JobOutcome | None:
    """Return the outcome that the job's child has written; None if it has written none yet."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return from_json((job.folder / "result.json").read_bytes(), JobOutcome)
    return None


def _take_uploads(folder: Path, uploads: list[tuple[Path, str]]) -> list[JobFile]:
    """Move uploads into a job's folder; if one is missing, undo the moves and raise NotFoundError."""
    files: list[JobFile] = []
    for number, (path, name) in enumerate(uploads):
        target = folder / f"file-{number}"
        try:
            path.replace(target)
        except FileNotFoundError:  # Another job took the upload first.
            for (source, _), file in zip(uploads, files, strict=False):
                Path(file.path).replace(source)
            shutil.rmtree(folder, ignore_errors=True)
            raise NotFoundError("Another job has already taken an upload of this job. Upload the file again.") from None
        files.append(JobFile(str(target), name, target.stat().st_size))
    return files


def _stop(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a child and all processes that it started, because none of them needs a clean shutdown."""
    if process is None or process.poll() is not None:
        return
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
