"""Tests of the pages of a run with a telemetry log and no profile."""

from __future__ import annotations

import re
from pathlib import Path

from sawtooth.analysis.store.library import Library
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import charts, headline_of, opened, run_of, staircase_of, words_of
from tests.support.sampled_hosts import Trouble, host
from tests.support.smi_log import smi_log


def test_the_verdict_shows_findings_of_telemetry(app_data: DataFolder, tmp_path: Path) -> None:
    gpus = host(3, gpus=4, seconds=600, troubles=(Trouble("thermal-throttling", (2,), 0.5, 300, 539),))
    page = opened("verdict", run_of(app_data, smi_log(tmp_path / "smi.csv", gpus)))
    text = words_of(page).replace("\u00a0", " ").replace("\u202f", " ")
    assert headline_of(page).replace("\u00a0", " ").replace("\u202f", " ") == "Check cooling and airflow of GPU 2"
    assert "Cause: Heat reduces the clock of GPU 2 by 50 %. A job on all 4 GPUs then takes up to 2.00 × as long." in text
    drawn = (staircase_of(page) or {})["panorama"]
    assert drawn["name"] == "SM clock of GPU 2" and min(value for *_, value in drawn["spans"]) < 60 < min(
        v for *_, v in drawn["peers"]
    )
    assert "in 240 of 600 samples, 40 % of the time: hardware thermal slowdown (0x40)" in text
    assert "Record next: nvidia-smi -q -d PERFORMANCE,TEMPERATURE while it happens." in text
    assert "Narrow PCIe link: not checked, because the samples have no PCIe link" in text


def test_gpus_of_two_hosts_are_listed_worst_first(app_data: DataFolder, tmp_path: Path) -> None:
    """GPU 1 of node-b is hot; node-a has no samples from 200 to 400 s."""
    hot = (Trouble("thermal-throttling", (1,), 0.6, 100, 590),)
    logs = [
        smi_log(tmp_path / "node-a.csv", host(4, gpus=2, seconds=600), hole=(200, 400)),
        smi_log(tmp_path / "node-b.csv", host(4, gpus=2, seconds=600, troubles=hot)),
    ]
    run = run_of(app_data, *logs)
    page = opened("telemetry", run)
    (drawn,) = [chart["data"][0] for chart in charts(page) if chart["data"][0]["type"] == "heatmap"]
    assert drawn["y"][0] == "node-b.csv GPU 1" and set(drawn["y"][1:]) == {
        "node-b.csv GPU 0",
        "node-a.csv GPU 0",
        "node-a.csv GPU 1",
    }
    rows = dict(zip(drawn["y"], drawn["z"], strict=True))
    assert all(value is None for value in rows["node-a.csv GPU 0"][82:158])  # The row has 240 cells.
    assert all(value is not None for value in rows["node-b.csv GPU 0"])
    text = words_of(page).replace("\u00a0", " ").replace("\u202f", " ")
    assert re.search(r"Utilization of 4 GPUs over (9\.98 min|599 s), the worst first", text)
    assert "node-b.csv: Heat reduces the clock of GPU 1 by 40 %" in text
    assert "SM clock of GPU 1" in str(staircase_of(opened("verdict", run)))
    library = Library(app_data)
    card = card_of(app_data.resolve_run(run), library)
    library.close()
    assert card.headline.startswith("node-b.csv: Heat reduces the clock of GPU 1") and card.gpu == "4 GPUs"
