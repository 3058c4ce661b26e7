"""Several changes at once: one replay, not a sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.outlook import Outlook, together_ms
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.intake import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop


def test_no_change_is_the_step_as_it_is_and_changes_do_not_make_it_slower(tmp_path: Path) -> None:
    library = Library(DataFolder(tmp_path / "data"))
    run = bring_in(library.folder, [(matmul_loop().write(tmp_path / "t.json"), "t.json")]).runs[0]
    result = analyse(run, library)
    assert result.lead is not None
    best = result.lead.best.ms
    assert best is not None
    assert together_ms(library, result.lead, []) == pytest.approx(best)
    alone = [together_ms(library, result.lead, [finding]) for finding in result.findings]
    together = together_ms(library, result.lead, result.findings)
    assert together is not None
    assert all(one is not None and together <= one * 1.001 for one in alone)
    library.close()


def outlook(after: float, mfu: float | None = 0.005, gpus: int = 8) -> Outlook:
    return Outlook(before_ms=312.0, after_ms=after, mfu_before=mfu, gpus=gpus)


def test_what_changes_bring_is_said_of_a_day_and_of_the_steps_to_go() -> None:
    # 312 → 26 ms: 12 times as fast; MFU 0.5 % × 12 = 6 %; a million steps take 86.7 and 7.2 h
    found = outlook(26.0)
    assert found.speedup == pytest.approx(12)
    assert found.mfu == pytest.approx(0.06)
    assert found.hours_of(1e6) == (pytest.approx(86.667, rel=1e-4), pytest.approx(7.2222, rel=1e-4))
