"""Check inferred steps against marked ones: ``python -m tests.accuracy.inferred [FOLDER …]``.

Every trace below the folders is read with and without its annotations, and the two median device steps are compared. A trace
without step marks is listed with the inferred steps. The default is the bundled and the test recordings.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import RECORDINGS, ROOT, SAMPLES
from tests.support.unmarked import StepsSeen, marked_and_not

RECORDED_AFTER = ROOT / "tests" / "recordings_after"
WHOLE_FACTOR = 0.5  # Such a change means that half a step or two steps were counted as one.
CLOSE = 0.03


def main(roots: list[str]) -> int:
    """Print a row per trace and the summary; return 1 if a marked step was missed by a whole factor."""
    print("| trace | marked by | steps | step, ms | inferred | step, ms | change |\n|---|---|---|---|---|---|---|")
    changes: list[float | None] = []
    for path in _traces([Path(root) for root in roots] or [SAMPLES, RECORDINGS, RECORDED_AFTER]):
        marked, bare = marked_and_not(path)
        change = _change(marked, bare)
        print(
            f"| {path.parent.name}/{path.name} | {marked.source} | {marked.count} | {_ms(marked)} "
            f"| {bare.source} {bare.count} | {_ms(bare)} | {'none' if change is None else f'{change:+.2%}'} |",
            flush=True,
        )
        if marked.source in ("profiler_step", "annotation") and marked.ms is not None:
            changes.append(change)
    print("\n" + "\n".join(_summary(changes)))
    return int(any(change is not None and abs(change) >= WHOLE_FACTOR for change in changes))


def _traces(roots: list[Path]) -> Iterator[Path]:
    for root in roots:
        yield from sorted(root.rglob("*.json.gz"))


def _change(marked: StepsSeen, bare: StepsSeen) -> float | None:
    return bare.ms / marked.ms - 1 if marked.ms and bare.ms else None


def _ms(steps: StepsSeen) -> str:
    return "none" if steps.ms is None else f"{steps.ms:.3f}"


def _summary(changes: list[float | None]) -> Iterator[str]:
    sizes = [abs(change) for change in changes if change is not None]
    yield f"{len(changes)} traces with marks; without them steps were found in {len(sizes)}."
    if sizes:
        close = sum(size <= CLOSE for size in sizes) / len(changes)
        yield f"Median change {statistics.median(sizes):.2%}; {close:.0%} of all within {CLOSE:.0%}; largest {max(sizes):.1%}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
