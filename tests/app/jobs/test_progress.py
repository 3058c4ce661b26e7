"""What a job says of a trace while the rest of it is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sawtooth.app.format import share
from sawtooth.app.jobs import child, intake
from sawtooth.app.jobs.orders import JobFile, JobOrder, Progress
from tests.support.chrome_trace import matmul_loop


def test_what_a_trace_says_by_itself_is_there_before_its_analysis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = matmul_loop().write(tmp_path / "trace.json")
    told: list[Progress] = []
    before_deriving: list[str] = []
    derive = intake.ensure_derived

    def noted(*given: Any) -> Path:
        before_deriving.append(told[-1].seen)
        return derive(*given)

    monkeypatch.setattr(intake, "ensure_derived", noted)
    order = JobOrder(str(tmp_path / "data"), [JobFile(str(trace), trace.name, trace.stat().st_size)])
    outcome = child.run(order, told.append)
    assert len(before_deriving) == 1 and before_deriving[0].endswith(f"4 steps, GPU busy {share(2800 / 3700)} of the recording")
    assert told[-1].runs == outcome.run_ids and told[-1].seen == before_deriving[0]
