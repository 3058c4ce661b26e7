"""The drop zone: the browser uploads files directly to ``PUT /api/v1/uploads``, with progress.

Files that are dropped together become one ingest job. Traces of one training job become one run, and telemetry is attached to
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from sawtooth.app.server.process import jobs

_OWN, _ARRIVED = "my_jobs", "arrived_jobs"  # In the session's state.
_COMPONENTS = Path(__file__).resolve().parents[1] / "components"


def drop_zone(*, note: str, compact: bool = False, key: str = "drop_zone") -> str | None:
    """Show the drop zone; return the id of the job that it has just started, or None."""
    component = st.components.v2.component(
        "sawtooth.drop_zone",
        html=(_COMPONENTS / "drop_zone.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "drop_zone.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "drop_zone.js").read_text(encoding="utf-8"),
    )
    result: Any = component(key=key, data={"note": note, "compact": compact}, on_started_change=lambda: _note_own(key))
    started = getattr(result, "started", None)
    return str(started) if started else None


def own_jobs() -> list[str]:
    """Return the ids of the jobs that this session has started and not dismissed."""
    return list(st.session_state.get(_OWN, []))


def arrived_run() -> str | None:
    """Return a run that a job of this session has made since the last call; None if there is no new one."""
    seen: set[str] = st.session_state.setdefault(_ARRIVED, set())
    finished = [job for job in jobs().all() if job.id in own_jobs() and job.stage == "done" and job.id not in seen]
    seen.update(job.id for job in finished)
    return next((run for job in reversed(finished) for run in job.outcome.run_ids), None)


def forget(job: str) -> None:
    """Forget a job of this session."""
    st.session_state[_OWN] = [own_job for own_job in own_jobs() if own_job != job]


def _note_own(key: str) -> None:
    """Store the id of the job that a drop zone has just started, in a callback.

    The component returns the id only once. Streamlit may end that run of the page before the code after the drop zone runs.
    """
    started = getattr(st.session_state.get(key), "started", None)
    if started and str(started) not in own_jobs():
        st.session_state[_OWN] = [*own_jobs(), str(started)]
