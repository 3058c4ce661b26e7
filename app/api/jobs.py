"""``/api/v1/jobs``: start a job that reads uploads, show its progress, and cancel it."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sawtooth.app.api.answers import answer_errors, json, refusal
from sawtooth.app.api.uploads import NAME_LENGTH, claim_upload
from sawtooth.app.format import clean
from sawtooth.app.jobs.queue import IngestJob
from sawtooth.app.server.process import jobs
from sawtooth.app.server.request_body import BodyTooLongError, whole_body
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.typed import from_json

MAX_BODY_BYTES = 64 << 10  # The body is a list of upload ids and names.
BODY_SECONDS = 30  # Time limit of a body, which is one packet or a few.


class _File(msgspec.Struct):
    upload: str
    name: str


class _JobOrder(msgspec.Struct):
    files: list[_File]
    separate: bool = False


@answer_errors
async def create(request: Request) -> Response:
    """Start a job: ``{"files": [{"upload": id, "name": …}], "separate": false}``. Returns 202 and the job."""
    try:
        body = await whole_body(request, MAX_BODY_BYTES, BODY_SECONDS)
    except BodyTooLongError:
        return refusal(413, f"The order is longer than {MAX_BODY_BYTES:,} bytes. Send fewer files.")
    except TimeoutError:
        return refusal(408, f"The order did not arrive within {BODY_SECONDS} seconds.")
    except ClientDisconnect:
        return refusal(400, "The connection closed before the end of the order.")
    try:
        order = from_json(body, _JobOrder)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UsageError('The order is JSON such as {"files": [{"upload": "…", "name": "trace.json.gz"}]}.') from None
    if len({file.upload for file in order.files}) != len(order.files):
        raise UsageError("The order names an upload twice. Name each upload once.")
    uploads = [(claim_upload(file.upload), clean(file.name, NAME_LENGTH) or "upload") for file in order.files]
    job = await run_in_threadpool(lambda: jobs().start(uploads, separate=order.separate))
    return json(as_json(job), 202)


@answer_errors
async def index(request: Request) -> Response:
    """Return every job of this server, newest first."""
    return json({"jobs": [as_json(job) for job in await run_in_threadpool(jobs().all)]})


@answer_errors
async def show(request: Request) -> Response:
    """Return one job."""
    return json(as_json(await run_in_threadpool(jobs().get, request.path_params["job"])))


@answer_errors
async def cancel(request: Request) -> Response:
    """Stop a job and return its final state."""
    await run_in_threadpool(jobs().cancel, request.path_params["job"])
    return json(as_json(jobs().get(request.path_params["job"])))


def as_json(job: IngestJob) -> dict[str, Any]:
    """Return a job in its API form, which contains no path of this server."""
    return {
        "job": job.id,
        "stage": job.stage,
        "files": [{"name": file.name, "bytes": file.bytes} for file in job.files],
        "share": job.progress.share,
        "events": job.progress.events,
        "run_ids": job.outcome.run_ids,
        "notices": job.outcome.notices,
        "error": {"code": job.outcome.code, "sentence": job.outcome.sentence} if job.outcome.sentence else None,
    }
