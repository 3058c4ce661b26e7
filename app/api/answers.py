"""Shared parts of the API: the requested run, JSON, and errors as one sentence with a status."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.app.settings import settings
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.manifest import Manifest

# Errors of a disk or folder that cannot be written. A missing file is not among them, because free space would not help.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)

Handler = Callable[[Request], Awaitable[Response]]


def json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with ``content`` as JSON that caches do not store."""
    return Response(
        msgspec.json.encode(content), status, {"cache-control": "no-store", **(headers or {})}, media_type="application/json"
    )


def refusal(status: int, sentence: str, code: str = "refused", headers: dict[str, str] | None = None) -> Response:
    """Return an error response that says what to do."""
    return json({"error": {"code": code, "sentence": sentence}}, status, headers)


def run_of(request: Request) -> Manifest:
    """Return the manifest of the run in the address; raises NotFoundError, also for an invalid id."""
    try:
        return settings().data.read_manifest(request.path_params["run"])
    except UsageError as error:
        raise NotFoundError(str(error)) from None


def answer_errors(handler: Handler) -> Handler:
    """Return ``handler`` with Sawtooth's errors as responses; any other error is a 500 without details."""

    @wraps(handler)
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except NotFoundError as error:
            return refusal(404, str(error), error.code)
        except SawtoothError as error:
            return refusal(400, str(error), error.code)
        except OSError as error:
            if error.errno not in WRITE_ERRORS:
                raise
            return refusal(507, "The server's disk cannot be written. Free some space there, then try again.", "E-DISK")

    return answer
