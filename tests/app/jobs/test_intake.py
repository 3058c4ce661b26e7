"""What is said of a file as it comes in."""

from __future__ import annotations

from pathlib import Path

from sawtooth.app.jobs.intake import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop


def test_a_trace_that_was_cut_off_is_said_to_be_when_it_comes_in(tmp_path: Path) -> None:
    whole = matmul_loop().write(tmp_path / "whole.json")
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole.read_bytes()[: int(0.8 * whole.stat().st_size)])
    folder = DataFolder(tmp_path / "data").create()
    assert bring_in(folder, [(whole, "whole.json")], name="whole").notices == []
    (notice,) = bring_in(folder, [(cut, "cut.json")], name="cut").notices
    assert notice.startswith("cut.json: The trace ends before its closing bracket")
