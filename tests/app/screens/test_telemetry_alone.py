"""The pages of a run that has a log of samples and no profile."""

from __future__ import annotations

from pathlib import Path

from sawtooth.ingest.schema import DataFolder
from tests.support.pages import headline_of, opened, run_of, words_of
from tests.support.sampled_hosts import Trouble, host
from tests.support.smi_log import smi_log


def test_the_verdict_shows_what_the_samples_show(app_data: DataFolder, tmp_path: Path) -> None:
    gpus = host(3, gpus=4, seconds=600, troubles=(Trouble("thermal-throttling", (2,), 0.5, 300, 539),))
    page = opened("verdict", run_of(app_data, smi_log(tmp_path / "smi.csv", gpus)))
    text = words_of(page).replace("\u00a0", " ").replace("\u202f", " ")
    assert headline_of(page).replace("\u00a0", " ").replace("\u202f", " ") == "Heat slows GPU 2 to 50 % of its clock."
    assert "in 240 of 600 samples, 40 % of the time: hardware thermal slowdown (0x40)" in text
    assert "Record next: nvidia-smi -q -d PERFORMANCE,TEMPERATURE while it happens." in text
    assert "Narrow PCIe link: not checked, because the samples have no PCIe link" in text
