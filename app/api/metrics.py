"""``GET /metrics``: numbers of live trainings and of the newest runs, for Prometheus.

Prometheus sends the server's token (``authorization: credentials_file``), because every address needs a login. Only analysed runs
are shown, so a request never starts an analysis.
"""

from __future__ import annotations

from itertools import islice

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.analysis.result_cache import cached_result
from sawtooth.app.api.answers import answer_errors, refusal
from sawtooth.app.api.sessions import state_of
from sawtooth.app.library import library
from sawtooth.app.live.info import sessions
from sawtooth.app.publish.prometheus import MAX_RUNS, exposition
from sawtooth.app.runs.listing import listed
from sawtooth.app.settings import settings

MAX_READ = 4 * MAX_RUNS  # Newest runs that are read. Only the newest run of each name is shown.
MAX_SESSIONS = 50  # At most this many live sessions are exported.
MISSING = "Metrics need the package prometheus-client on this server: pip install 'sawtooth[metrics]'."


@answer_errors
async def metrics(_request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    try:
        content, kind = await run_in_threadpool(_exposition)
    except ImportError:
        return refusal(501, MISSING)
    return Response(content, headers={"content-type": kind, "cache-control": "no-store"})


def _exposition() -> tuple[bytes, str]:
    data = settings().data.create()
    live = [
        state
        for info in islice(sessions(data.live), MAX_SESSIONS)
        if (state := state_of(info.id)) is not None and state["live"]
    ]
    runs = listed(data.manifests())[:MAX_READ]
    results = [result for run in runs if (result := cached_result(run, library().folder)) is not None]
    return exposition(live, results)
