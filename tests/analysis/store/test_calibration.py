"""Tests of a GPU's measured calibration: it is used for its runs, and impossible files are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.result_cache import cached_file
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.calibration import FILE, dispatch_of, keep
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop


def test_a_run_uses_the_measurements_of_its_gpu(tmp_path: Path) -> None:
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(matmul_loop().write(tmp_path / "trace.json"), "trace.json")]).runs[0]
    before, place = analyse(run, library).lead, cached_file(library.folder, run, "x")
    keep(library.folder, "NVIDIA H200", (1.5, 1.75, 2.0))
    keep(library.folder, "NVIDIA L4", (0.5, 0.6, 0.7))
    after = analyse(run, library).lead
    assert before is not None and before.gpu is not None and before.gpu.dispatch.ns == 1200
    assert after is not None and after.gpu is not None and after.gpu.dispatch.ns == 1750
    assert (after.gpu.dispatch.low_ns, after.gpu.dispatch.high_ns) == (1500, 2000)
    assert "sawtooth calibrate" in after.gpu.dispatch.source
    assert cached_file(library.folder, run, "x") != place  # Earlier results are computed again.
    library.close()


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"GPU": {"dispatch_us": [3, 2, 1]}}', '{"GPU": {"dispatch_us": [1, 2, 1e9]}}', '{"GPU": 1}']
)
def test_a_damaged_file_is_not_used(tmp_path: Path, text: str) -> None:
    folder = DataFolder(tmp_path).create()
    (folder.root / FILE).write_text(text)
    assert dispatch_of(folder, "GPU") is None


def test_a_flipped_bit_in_a_measurement_is_reported_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = DataFolder(tmp_path).create()
    keep(folder, "GPU", (1.5, 1.75, 2.0))
    complete = (folder.root / FILE).read_bytes()
    (folder.root / FILE).write_bytes(complete.replace(b"1.75", b"1.55"))
    assert dispatch_of(folder, "GPU") is None and "damaged" in caplog.text
    keep(folder, "GPU", (1.5, 1.75, 2.0))
    assert (folder.root / FILE).read_bytes() == complete
