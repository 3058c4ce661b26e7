"""Tests of the summary beside a chart: it has the chart's recording and GPU."""

from __future__ import annotations

import json
from pathlib import Path

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry import series
from sawtooth.app.page.parts import telemetry_strip
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS
from tests.support.prepared import prepared


def test_two_hosts_sampled_from_the_same_second_stay_separate(tmp_path: Path) -> None:
    for host, util in (("node-1", 20), ("node-2", 90)):
        lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10, "host": host}]
        lines += [{"t_ns": BASE_NS + i * 10**8, "gpu_util": util, "power_w": 500.0} for i in range(80)]
        (tmp_path / f"{host}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = DataFolder(tmp_path / "data").create()
    manifest, library = prepared(data, tmp_path / "node-1.jsonl", tmp_path / "node-2.jsonl"), Library(data)
    result = result_of(manifest, library)
    seen = {}
    for ref in manifest.telemetry:
        with library.open(ref.id, derived=False) as recording:
            whole = series.telemetry(recording, 0)
        part = series.last(whole, 2.0)
        for telemetry in (whole, part):
            summary = telemetry_strip.summary_of(result, telemetry)
            assert summary is not None and summary.recording_id == ref.id
            assert summary.means["util_pct"] == telemetry.samples["util_pct"].mean()
        seen[summary.host] = summary.means["util_pct"]
    library.close()
    assert seen == {"node-1": 20, "node-2": 90}
