"""Several ranks in one picture: what happened at once stands at one place, whatever each rank's clock said."""

import json
from pathlib import Path

from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.pages import opened, run_of


def test_all_ranks_stand_on_one_clock(app_data: DataFolder, tmp_path: Path) -> None:
    files = [trace.write(tmp_path / f"rank{rank}.json") for rank, trace in enumerate(job(2, 2, Planted(clock_us={1: 5000})))]
    run = run_of(app_data, *files)
    alone, together = (tracks(run, **query) for query in ({}, {"ranks": "true"}))
    assert len(alone) == 1
    assert len(together) == 2
    assert together[0]["offset"] == 0
    assert abs(together[1]["offset"]) < 500_000, "rank 1's clock is 5 ms ahead, and its trace began with the other"
    sources = [lane["source"] for lane in together[1]["lanes"]]
    assert sources[:2] == ["gaps", "gpu"]
    assert "python" not in sources
    assert all(lane["folded"] for lane in together[1]["lanes"] if lane["source"] == "operators")


def tracks(run: str, **query: str) -> list[dict]:
    """Return the tracks that the page hands to the timeline's component."""
    test = opened("timeline", run, **query)
    (proto,) = (element.proto for element in test.main if "tracks" in str(element.proto))
    return list(json.loads(proto.json)["tracks"])
