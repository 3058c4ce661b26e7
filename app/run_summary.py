"""What a run's card says: analysed once, kept until its manifest changes."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from analysis.metrics import Reading
from analysis.results import RunResult, analyse
from analysis.sparkline import recent_utilization
from analysis.version import ANALYSIS_VERSION
from app import frame
from app.words import first_line
from ingest.errors import SawtoothError
from ingest.schema import Manifest

KEPT = 500  # cards kept in memory, a few kB each


@dataclass(frozen=True)
class Summary:
    """A run's card: GPU, headline, readings by metric key, the last utilization; or the sentence why there is none."""

    gpu: str = ""
    headline: str = ""
    readings: dict[str, Reading] | None = None
    utilization: tuple[float | None, ...] = ()
    problem: str | None = None


def summary_of(manifest: Manifest) -> Summary:
    """Return the card of ``manifest``. A damaged or missing recording becomes the card's ``problem``."""
    path = frame.data_folder().manifest_file(manifest.id)
    changed = path.stat().st_mtime_ns if path.exists() else 0
    return _summary(str(frame.data_folder().root), manifest.id, changed, ANALYSIS_VERSION, manifest)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def _summary(root: str, run: str, changed_ns: int, version: int, _manifest: Manifest) -> Summary:
    try:
        result = analyse(_manifest, frame.library())
        return Summary(
            _gpu(result),
            first_line(result),
            result.metrics,
            tuple(recent_utilization(frame.library(), _manifest)),
            _trouble(result),
        )
    except SawtoothError as error:
        return Summary(problem=str(error))


def _gpu(result: RunResult) -> str:
    names = sorted({rank.device_name or (rank.gpu.name if rank.gpu else "") for rank in result.ranks} - {""})
    ranks = f"{len(result.ranks)} × " if len(result.ranks) > 1 else ""
    return ranks + ", ".join(names) if names else ""


def _trouble(result: RunResult) -> str | None:
    lost = [d.sentence for d in result.diagnostics if d.severity in ("data_loss", "error")]
    return lost[0] if lost else None
