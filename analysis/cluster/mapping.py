"""Map: every source to its summary, once. What is summarised already is never read again, so a run that was interrupted goes on where it was.

A summary's name says of which source and which version of its bytes and of our code it is; summaries are written whole or not at all. So any
number of drivers may work on the same sources, and a source that two of them read at a time has one summary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sawtooth.analysis.cluster.places import Source, list_sources, part_of, place_of
from sawtooth.analysis.cluster.summary import SUMMARY_VERSION
from sawtooth.analysis.version import ANALYSIS_VERSION

SUFFIX = ".rank.parquet"


@dataclass(frozen=True)
class Outcome:
    """What came of one source: ``ranks`` rows, or why it cannot be read (``refused``, for good), or why it was not this time (``failed``)."""

    url: str
    ranks: int = 0
    refused: str | None = None
    failed: str | None = None


Task = Callable[[Source, str], Outcome]  # reads a source, writes its summary to a place
Engine = Callable[[Task, Sequence[Source], str], Generator[Outcome]]  # closed when it is left: it may hold processes


@dataclass
class Mapped:
    """How far a map is: sources in all, those that were summarised before, and what came of the others so far."""

    sources: int
    before: int
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Sources that need not be read again."""
        return self.before + sum(outcome.failed is None for outcome in self.outcomes)

    @property
    def refused(self) -> list[Outcome]:
        """Sources that are no trace and no telemetry, or damaged."""
        return [outcome for outcome in self.outcomes if outcome.refused is not None]

    @property
    def failed(self) -> list[Outcome]:
        """Sources to be read again by the next run."""
        return [outcome for outcome in self.outcomes if outcome.failed is not None]


def map_sources(
    urls: Iterable[str],
    to: str,
    task: Task,
    engine: Engine,
    *,
    part: tuple[int, int] = (1, 1),
    progress: Callable[[Mapped], None] = lambda _: None,
) -> Mapped:
    """Summarise the sources at ``urls`` into the place ``to``, but those that are there. ``part`` is (i, n): the i-th of n shares, from 1."""
    place = place_of(to)
    sources = [source for source in part_of(list_sources(urls), *part) if not source.url.startswith(f"{place.url}/")]
    there = place.names()
    left = [source for source in sources if summary_name(source) not in there]
    mapped = Mapped(len(sources), len(sources) - len(left))
    progress(mapped)
    of_source: dict[str, list[str]] = {}
    for name in there:
        of_source.setdefault(name.partition("-")[0], []).append(name)
    by_url = {source.url: source for source in left}
    if not left:
        return mapped
    with closing(engine(task, left, to)) as outcomes:
        for outcome in outcomes:
            mapped.outcomes.append(outcome)
            if outcome.failed is None:
                for old in of_source.pop(_name_of_source(by_url[outcome.url]), ()):
                    place.remove(old)  # of the bytes that were there before
            progress(mapped)
    return mapped


def summary_name(source: Source) -> str:
    """Return the name of a source's summary: of its address, then of the version of its bytes and of our code."""
    version = hashlib.sha256(f"{source.state} {ANALYSIS_VERSION} {SUMMARY_VERSION}".encode()).hexdigest()[:12]
    return f"{_name_of_source(source)}-{version}{SUFFIX}"


def is_summary(name: str) -> bool:
    """Tell whether an object of that name is a summary."""
    return name.endswith(SUFFIX)


def _name_of_source(source: Source) -> str:
    return hashlib.sha256(source.url.encode()).hexdigest()[:16]
