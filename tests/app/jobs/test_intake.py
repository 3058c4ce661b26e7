"""What is said of a file as it comes in."""

from __future__ import annotations

import gzip
from pathlib import Path

from sawtooth.app.jobs.intake import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.bundles import manifest_bytes, packed
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import GRAPH_BREAKS


def test_a_trace_that_was_cut_off_is_said_to_be_when_it_comes_in(tmp_path: Path) -> None:
    whole = matmul_loop().write(tmp_path / "whole.json")
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole.read_bytes()[: int(0.8 * whole.stat().st_size)])
    folder = DataFolder(tmp_path / "data").create()
    assert bring_in(folder, [(whole, "whole.json")], name="whole").notices == []
    (notice,) = bring_in(folder, [(cut, "cut.json")], name="cut").notices
    assert notice.startswith("cut.json: The trace ends before its closing bracket")


def test_a_log_of_torch_compile_that_comes_with_a_bundle_joins_its_run(tmp_path: Path) -> None:
    """The capture helper and `sawtooth run` write the bundle, TORCH_TRACE the log beside it."""
    trace, log = matmul_loop().write(tmp_path / "trace.json"), GRAPH_BREAKS / "breaks_1.log.gz"
    bundle = packed(
        tmp_path / "run.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": gzip.compress(trace.read_bytes())}
    )
    folder = DataFolder(tmp_path / "data").create()
    files = [(bundle, bundle.name), (log, log.name)]
    for given in (files, files[::-1], files[:1]):  # in any order; and a second time, without the log
        (run,) = bring_in(folder, given).runs
        assert [ref.kind for ref in run.recordings] == ["trace", "compile"]
    assert len(folder.manifests()) == 1
