"""Several changes at once: one replay, not a sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.recordings import Library
from analysis.results import analyse
from analysis.together import Outlook, together_ms
from app import words
from app.intake import bring_in
from ingest.schema import DataFolder
from tests.chrome_trace import matmul_loop


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


def test_what_changes_bring_is_said_of_a_day_and_of_its_cost() -> None:
    # 312 → 26 ms: 12 times as fast; MFU 0.5 % × 12 = 6 %; of 24 h eleven twelfths, 22 h, are saved; 8 GPUs at 3 an hour cost
    # 24 × 8 × 3 = 576 a day, of which 22 × 8 × 3 = 528 are saved.
    found = outlook(26.0)
    assert found.speedup == pytest.approx(12)
    assert found.mfu == pytest.approx(0.06)
    assert found.saved_hours_a_day == pytest.approx(22)
    assert (found.cost_of_a_day(3), found.saved_cost_a_day(3)) == (576, pytest.approx(528))
    assert words.outlook(found) == "312 ms → ≈ 26.0 ms a step (12 ×) · MFU 0.50 % → ≈ 6.0 %".replace(" ms", "\u00a0ms").replace(
        " ×", "\u00a0×"
    ).replace(" %", "\u00a0%")
    assert words.outlook_saves(found, None) == "Saves ≈ 22.0\u00a0h of each 24 h spent in such steps."
    assert words.outlook_saves(found, 3.0).endswith("and ≈ 528.00 of the 576.00 that a day on 8 GPUs costs.")
    assert words.outlook_saves(outlook(26.0, gpus=1), 3.0).endswith("and ≈ 66.00 of the 72.00 that a day on one GPU costs.")


def test_without_a_known_mfu_nothing_is_said_of_it_and_a_slower_step_costs() -> None:
    assert "MFU" not in words.outlook(outlook(26.0, mfu=None))
    assert words.outlook_saves(outlook(312.0), 3.0) == "Saves nothing."
    assert (
        words.outlook_saves(outlook(325.0), None) == "Costs ≈ 60.0\u00a0min more for each 24 h spent in such steps."
    )  # 24 h × 13 / 312
