"""``/api/v1/runs``: the runs of this server, and the source trace of a run for Perfetto and others."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.report import report_json
from sawtooth.app.api.answers import answer_errors, json, run_of
from sawtooth.app.library import library
from sawtooth.app.reports.perfetto import merged_trace
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import NotFoundError

DOWNLOAD = 'attachment; filename="ranks.json.gz"'


@answer_errors
async def index(request: Request) -> Response:
    """Return every run's manifest, newest first."""
    return json({"runs": await run_in_threadpool(settings().data.manifests)})


@answer_errors
async def show(request: Request) -> Response:
    """Return one run's manifest."""
    return json(await run_in_threadpool(run_of, request))


@answer_errors
async def report(request: Request) -> Response:
    """Return one run's report, as ``sawtooth report --format json`` prints it."""
    manifest = await run_in_threadpool(run_of, request)
    return json(await run_in_threadpool(lambda: report_json(result_of(manifest, library()))))


@answer_errors
async def trace(request: Request) -> Response:
    """Return the source of a run's trace, gzip-compressed.

    ``?rank=k`` or ``?recording=id`` selects one of several traces. ``?merged=1`` returns all of them as one trace.
    """
    manifest = await run_in_threadpool(run_of, request)
    if request.query_params.get("merged"):
        pieces = await run_in_threadpool(lambda: merged_trace(result_of(manifest, library()), settings().data))
        return StreamingResponse(pieces, media_type="application/gzip", headers={"content-disposition": DOWNLOAD})
    rank, recording_id = request.query_params.get("rank"), request.query_params.get("recording")
    for recording in manifest.recordings if recording_id else manifest.traces:
        if (recording_id is None or recording.id == recording_id) and (rank is None or str(recording.rank) == rank):
            path = settings().data.source_file(recording.id)
            if not path.is_file():
                raise NotFoundError(
                    "The source of this trace was not stored (--no-keep-source), so no other program can open it."
                )
            name = recording.source_name.rpartition("/")[2].removesuffix(".gz") + ".gz"
            headers = {"cache-control": "private, max-age=3600"}
            return FileResponse(path, media_type="application/gzip", filename=name, headers=headers)
    raise NotFoundError("This run has no such trace.")
