"""The numbers of a report with their trust, and those that are trusted and wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.audit import audit
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.without_findings import without_rules

WRONG = 0.10  # Largest accepted error of a trusted number, as a share of the right value.
COVERAGE = ("tensor_core_unknown_share", "flop_coverage")  # These change with the recorded data, as they should.
SMALL = 0.02  # Accepted absolute error of a share. Two percentage points change no decision.


def numbers_of(files: Sequence[tuple[str, bytes]]) -> RunResult | None:
    with without_rules():
        return analysed(files)


def analysed(files: Sequence[tuple[str, bytes]]) -> RunResult | None:
    """Return the analysis of one run's files; None if they were refused."""
    with TemporaryDirectory() as scratch:
        paths = []
        for name, content in files:
            path = Path(scratch, name)
            path.write_bytes(content)
            paths.append((path, name))
        folder = DataFolder(Path(scratch, "data")).create()
        runs = ingest_into_runs(folder, paths).runs
        if not runs:
            return None
        with Library(folder) as library:
            return analyse(runs[0], library)


def result_of(trace: ChromeTrace) -> RunResult:
    result = analysed([("t.json", trace.json())])
    assert result is not None
    return result


def claims(result: RunResult) -> dict[str, tuple[str, Reading]]:
    """Return unit and reading of every number in the report: metrics, and the audit's."""
    numbers = {key: (METRICS[key].unit, reading) for key, reading in result.metrics.items()}
    return numbers | {f"audit {row.key}": (row.unit, row.reading) for row in audit(result)}


def trusted_and_wrong(intact: RunResult, damaged: RunResult | None) -> Iterator[str]:
    """Yield a sentence for each trusted number that is wrong by more than WRONG.

    The numbers are those of the damaged recording's report.
    """
    if damaged is None:
        return
    right = claims(intact)
    for key, (unit, reading) in claims(damaged).items():
        true = right[key][1].value
        if key in COVERAGE or reading.trust != "ok" or reading.value is None or true is None:
            continue
        if unit == "share" and abs(reading.value - true) <= SMALL:
            continue
        if abs(reading.value - true) > WRONG * abs(true):
            yield f"{key} is {reading.value:.4g}, trusted; right is {true:.4g}"


class Outcome(NamedTuple):
    """The result of one damaged recording.

    ``doubted`` and ``trusted`` count the numbers that the intact report trusts.
    """

    refused: bool
    wrong: list[str]
    doubted: int  # The number is withheld, or its trust is not "ok".
    trusted: int

    @property
    def all_doubted(self) -> bool:
        return not self.refused and self.doubted > 0 and self.trusted == 0

    @property
    def some_doubted(self) -> bool:
        return self.doubted > 0 and self.trusted > 0


def outcome(intact: RunResult | None, damaged: RunResult | None) -> Outcome:
    """Compare a damaged recording's report with the intact one's."""
    if intact is None or damaged is None:
        return Outcome(damaged is None, [], 0, 0)
    now = claims(damaged)
    trusted = [
        key for key, (_, reading) in claims(intact).items()
        if reading.trust == "ok" and reading.value is not None
    ]  # fmt: skip
    doubted = sum(now[key][1].trust != "ok" or now[key][1].value is None for key in trusted)
    return Outcome(False, list(trusted_and_wrong(intact, damaged)), doubted, len(trusted) - doubted)
