"""HTTP routes: index pages, and uploads, jobs, samples, traces, tiles and reports under ``/api/v1``."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from sawtooth.app.api import addresses, find, jobs, live, metrics, runs, sessions, timeline, timeline_details, uploads


def routes() -> list[BaseRoute]:
    """Return every route of the app that is not Streamlit's.

    ``sawtooth.app.server.access`` guards the methods that write (Origin and X-Sawtooth).
    """
    return [
        *addresses.routes(),
        Route("/metrics", metrics.metrics, methods=["GET"]),
        Route("/api/v1/uploads", uploads.put, methods=["PUT"]),
        Route("/api/v1/jobs", jobs.create, methods=["POST"]),
        Route("/api/v1/jobs", jobs.index, methods=["GET"]),
        Route("/api/v1/jobs/{job}", jobs.show, methods=["GET"]),
        Route("/api/v1/jobs/{job}", jobs.cancel, methods=["DELETE"]),
        Route("/api/v1/find", find.index, methods=["GET"]),
        Route("/api/v1/live/{session}", live.show, methods=["GET"]),
        Route("/api/v1/live/{session}", live.push, methods=["POST"]),
        Route("/api/v1/sessions", sessions.index, methods=["GET"]),
        Route("/api/v1/sessions/{session}", sessions.show, methods=["GET"]),
        Route("/api/v1/runs", runs.index, methods=["GET"]),
        Route("/api/v1/runs/{run}", runs.show, methods=["GET"]),
        Route("/api/v1/runs/{run}/report", runs.report, methods=["GET"]),
        Route("/api/v1/runs/{run}/trace", runs.trace, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/tiles", timeline.tiles, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/slice", timeline_details.details, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/stretch", timeline_details.stretch, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/find", timeline_details.find, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/occurrences", timeline_details.occurrences, methods=["GET"]),
        Route("/api/v1/runs/{run}/timeline/longest", timeline_details.longest, methods=["GET"]),
    ]
