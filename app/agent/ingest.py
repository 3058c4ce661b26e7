"""The tool ``ingest`` in two variants: for paths on this machine, and for uploads over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sawtooth.app.agent import answers
from sawtooth.app.agent.tools import Tools
from sawtooth.app.format import clean
from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.app.jobs.queue import Jobs
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.runs.manifests import add_tags

NAME_LENGTH = 200  # Characters of a file's name.
MAX_FILES = 1000  # Files of one call. The command line reads larger jobs.
JOB_TIMEOUT_SECONDS = 50.0  # Longest wait for a job, because most MCP clients give up after 60 s. The job continues.
POLL_SECONDS = 0.1  # Time between two checks of a job.

Name = Annotated[str, Field(description="Name of the run; by default the name of the first file.")]
Tags = Annotated[list[str] | None, Field(description="Tags, such as baseline or batch_size=64.")]


def from_paths(tools: Tools) -> Callable[..., answers.IngestedRuns]:
    """Return the tool ``ingest`` for paths on this machine."""

    def ingest(
        paths: Annotated[
            list[str], Field(description="Files or folders on this machine; files of one training become one run.")
        ],
        name: Name = "",
        tags: Tags = None,
    ) -> answers.IngestedRuns:
        """Read traces (.json, .json.gz), Nsight exports (.sqlite) and telemetry into a run.

        The files are not changed.
        """
        files: list[tuple[Path, str]] = []
        for text in paths:
            path = Path(text).expanduser()
            if not path.exists():
                raise UsageError(f"{text} does not exist.")
            files_at_path, _is_folder = files_of(path)
            if not files_at_path:
                raise UsageError(f"{text} contains neither a trace nor telemetry.")
            files += files_at_path
        _check_count(files)
        ingested = ingest_into_runs(tools.library.folder, files, name=name or None, tolerant=True)
        run_ids = [run.id for run in ingested.runs]
        for run_id in run_ids if tags else []:
            add_tags(tools.library.folder, run_id, _clean_tags(tags))
        return _answer(tools, run_ids, ingested.refused, ingested.notices)

    return ingest


def from_uploads(
    tools: Tools, jobs: Callable[[], Jobs], upload_path: Callable[[str], Path]
) -> Callable[..., answers.IngestedRuns]:
    """Return the tool ``ingest`` for uploads: a job of the server reads them in its own process.

    ``upload_path`` returns the file of an upload's id. Paths on the server are not accepted.
    """

    def ingest(
        uploads: Annotated[dict[str, str], Field(description="The file name of each upload, by the upload's id.")],
        name: Name = "",
        tags: Tags = None,
    ) -> answers.IngestedRuns:
        """Make a run from uploaded traces and telemetry.

        Upload each file first: PUT /api/v1/uploads?name=FILE with the headers Authorization: Bearer TOKEN and X-Sawtooth: 1.
        The answer's `upload` is the id. Paths on the server are not accepted.
        """
        files = [(upload_path(upload), clean(file_name, NAME_LENGTH) or "upload") for upload, file_name in uploads.items()]
        _check_count(files)
        started = jobs().start(files, name=clean(name, NAME_LENGTH), tags=_clean_tags(tags))
        deadline = time.monotonic() + JOB_TIMEOUT_SECONDS
        while (job := jobs().get(started.id)).active and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if job.active:
            notice = "The files are still being read. Call list_runs in a minute, which then lists the run."
            return answers.IngestedRuns([], [], [notice])
        if job.outcome.sentence and not job.outcome.run_ids:
            raise SawtoothError(job.outcome.sentence)
        left_out = [job.outcome.sentence] if job.outcome.sentence else []
        return _answer(tools, job.outcome.run_ids, left_out, job.outcome.notices)

    return ingest


def _check_count(files: Sequence[tuple[Path, str]]) -> None:
    if not 1 <= len(files) <= MAX_FILES:
        raise UsageError(f"{len(files):,} files are given. Give 1 to {MAX_FILES:,}.")


def _clean_tags(tags: list[str] | None) -> list[str]:
    return [clean(tag, NAME_LENGTH) for tag in tags or []]


def _answer(tools: Tools, run_ids: list[str], left_out: list[str], notices: list[str]) -> answers.IngestedRuns:
    runs = [tools.listed_run(tools.library.folder.read_manifest(run_id)) for run_id in run_ids]
    return answers.IngestedRuns(runs, left_out, notices)
