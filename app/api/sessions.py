"""``/api/v1/sessions``: numbers of running trainings, for alarms, dashboards and schedulers."""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.app.api.answers import answer_errors, json
from sawtooth.app.live.finish import live_sessions
from sawtooth.app.live.info import SessionInfo, session_info, sessions
from sawtooth.app.live.sessions import LiveSession
from sawtooth.app.live.words import NUMBERS, RECENT_SECONDS
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import NotFoundError


@answer_errors
async def index(request: Request) -> Response:
    """Return the newest sessions, live ones first."""
    infos = await run_in_threadpool(lambda: sessions(settings().data.create().live))
    return json({"sessions": [_describe(info) for info in infos]})


@answer_errors
async def show(request: Request) -> Response:
    """Return the current state of one session.

    The state contains means of each GPU over the last ten seconds, its sawtooth, alerts, findings, and the step rate if the
    training sends step marks.
    """
    state = await run_in_threadpool(state_of, str(request.path_params["session"]))
    if state is None:
        raise NotFoundError("This server has no such session.")
    return json(state)


def state_of(name: str) -> dict[str, Any] | None:
    """Return the current state of the session with the id ``name``; None if there is no such session."""
    session = live_sessions().get(name)
    info = session_info(session.folder) if session is not None else None
    if session is None or info is None:
        return None
    return {
        **_describe(info),
        "newest_ns": session.last_ns,
        "seconds": RECENT_SECONDS,
        "gpus": [_gpu(session, device) for device in sorted(session.gpus)],
        "alerts": session.alerts(),
        "findings": [
            {
                "kind": finding.observation.kind,
                "gpus": list(finding.observation.devices),
                "severity": finding.observation.severity,
                "sentence": finding.sentence,
            }
            for finding in session.findings()
        ],
        "steps": _steps(session),
    }


def _describe(info: SessionInfo) -> dict[str, Any]:
    return {"id": info.id, "name": info.name, "host": info.host, "live": info.live(time.time()), "started_ns": info.started_ns}


def _gpu(session: LiveSession, device: int) -> dict[str, Any]:
    gpu, tooth = session.gpus[device], session.sawtooth(device)
    means = {column: session.mean(device, column, RECENT_SECONDS) for column in NUMBERS}
    return {
        "device": device,
        "name": gpu.name,
        "means": {column: value for column, value in means.items() if value is not None},
        "memory_used_bytes": gpu.latest("mem_used_bytes"),
        "memory_bytes": gpu.memory_bytes,
        "sawtooth_period_s": tooth.period_s if tooth is not None else None,
        "sawtooth_duty": tooth.duty if tooth is not None else None,
    }


def _steps(session: LiveSession) -> dict[str, Any] | None:
    step_rate = session.step_rate
    if step_rate is None or session.last_ns is None:
        return None
    name = session.gpus[min(session.gpus)].name if session.gpus else ""
    return {
        "step": step_rate.step,
        "p50_ms": step_rate.p50_ms,
        "p95_ms": step_rate.p95_ms,
        "steps_per_s": step_rate.per_s,
        "samples_per_s": step_rate.samples_per_s,
        "mfu": step_rate.mfu(name),
        "silent_s": step_rate.silent_s(session.last_ns),
    }
