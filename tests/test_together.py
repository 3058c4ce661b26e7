"""Several changes at once: one replay, not a sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.recordings import Library
from analysis.results import analyse
from analysis.together import together_ms
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
