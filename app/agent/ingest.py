"""The ways in for files: paths on this machine, uploads over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import Field

from sawtooth.app.agent import answers
from sawtooth.app.agent.tools import Tools
from sawtooth.app.format import clean
from sawtooth.app.jobs.ingest_files import bring_in, files_of
from sawtooth.app.jobs.queue import Jobs
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.runs.manifests import edit_run

NAME_LENGTH = 200  # characters of a file's name
FILES_MOST = 1000
WAITS_SECONDS = 50.0  # most MCP clients give up after 60; the job itself goes on
LOOKS_EVERY_SECONDS = 0.1

Name = Annotated[str, Field(description="Name of the run; by default the first file's.")]
Tags = Annotated[list[str] | None, Field(description="Tags, such as baseline or batch_size=64.")]


def from_paths(tools: Tools) -> Callable[..., answers.BroughtIn]:
    """Return the tool ``ingest`` of this machine."""

    def ingest(
        paths: Annotated[list[str], Field(description="Files or folders on this machine; files of one job become one run.")],
        name: Name = "",
        tags: Tags = None,
    ) -> answers.BroughtIn:
        """Bring in traces (.json, .json.gz), Nsight exports (.sqlite) and telemetry as a run.

        The files stay as they are.
        """
        files: list[tuple[Path, str]] = []
        for text in paths:
            path = Path(text).expanduser()
            if not path.exists():
                raise UsageError(f"{text} does not exist.")
            here, _ = files_of(path)
            if not here:
                raise UsageError(f"{text} contains neither a trace nor telemetry.")
            files += here
        if not files or len(files) > FILES_MOST:
            raise UsageError(f"{len(files):,} files; give 1 to {FILES_MOST:,}.")
        brought = bring_in(tools.library.folder, files, name=name or None, tolerant=True)
        return _answer(tools, [run.id for run in brought.runs], brought.refused, brought.notices, tags)

    return ingest


def from_uploads(tools: Tools, jobs: Callable[[], Jobs], claimed: Callable[[str], Path]) -> Callable[..., answers.BroughtIn]:
    """Return the tool ``ingest`` of a server: a job reads the uploads in its own process.

    ``claimed`` returns the file of an upload's id. Paths of the server have no way in here.
    """

    def ingest(
        uploads: Annotated[dict[str, str], Field(description="The file name of each upload, by the upload's id.")],
        name: Name = "",
        tags: Tags = None,
    ) -> answers.BroughtIn:
        """Make a run of uploaded traces and telemetry.

        Upload each file first: PUT /api/v1/uploads?name=FILE with the headers Authorization: Bearer TOKEN and X-Sawtooth: 1.
        The answer's `upload` is the id. Paths on the server are not accepted.
        """
        files = [(claimed(upload), clean(called, NAME_LENGTH) or "upload") for upload, called in uploads.items()]
        job = jobs().start(files, name=clean(name, NAME_LENGTH))
        until = time.monotonic() + WAITS_SECONDS
        while (now := jobs().get(job.id)).active and time.monotonic() < until:
            time.sleep(LOOKS_EVERY_SECONDS)
        if now.active:
            later = "The files are still being read. Call list_runs in a minute; the run appears there."
            return answers.BroughtIn([], [], [later])
        if now.outcome.sentence and not now.outcome.run_ids:
            raise SawtoothError(now.outcome.sentence)
        left_out = [now.outcome.sentence] if now.outcome.sentence else []
        return _answer(tools, now.outcome.run_ids, left_out, now.outcome.notices, tags)

    return ingest


def _answer(
    tools: Tools, run_ids: list[str], left_out: list[str], notices: list[str], tags: list[str] | None
) -> answers.BroughtIn:
    folder = tools.library.folder
    added = [clean(tag, NAME_LENGTH) for tag in tags or []]
    for run_id in run_ids if added else []:
        edit_run(folder, run_id, lambda now: msgspec.structs.replace(now, tags=list(dict.fromkeys([*now.tags, *added]))))
    runs = [tools.listed_run(folder.read_manifest(run_id)) for run_id in run_ids]
    return answers.BroughtIn(runs, left_out, notices)
