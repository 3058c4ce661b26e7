"""Map step of a large job: make one summary per source (a trace or a telemetry file).

Sources that have a summary are never read again, so an interrupted map continues where it stopped. A summary's name contains
its source, the version of the source's bytes and the version of our code. Summaries are written completely or not at all. So
several drivers may work on the same sources at the same time; a source that two drivers read still gets one summary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sawtooth.analysis.cluster.storage import SourceVersion, list_sources, part_of, storage_at
from sawtooth.analysis.cluster.summary import SUMMARY_VERSION
from sawtooth.analysis.version import ANALYSIS_VERSION

SUFFIX = ".rank.parquet"


@dataclass(frozen=True)
class SourceOutcome:
    """The result for one source: the number of rows of its summary (``ranks``), or a reason.

    ``refused`` is the reason if the source can never be read. ``failed`` is the reason if only this attempt failed.
    """

    url: str
    ranks: int = 0
    refused: str | None = None
    failed: str | None = None


Task = Callable[[SourceVersion, str], SourceOutcome]  # Reads a source and writes its summary to a storage URL.
# The caller closes the generator at the end, because the engine may have started processes.
Engine = Callable[[Task, Sequence[SourceVersion], str], Generator[SourceOutcome]]


@dataclass
class MapProgress:
    """The progress of a map.

    ``sources`` is the number of sources. ``before`` is the number of sources that had a summary at the start. ``outcomes``
    has the results so far.
    """

    sources: int
    before: int
    outcomes: list[SourceOutcome] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The number of sources that need not be read again."""
        return self.before + sum(outcome.failed is None for outcome in self.outcomes)

    @property
    def refused(self) -> list[SourceOutcome]:
        """Sources that are damaged, or neither a trace nor telemetry."""
        return [outcome for outcome in self.outcomes if outcome.refused is not None]

    @property
    def failed(self) -> list[SourceOutcome]:
        """Sources that the next run reads again."""
        return [outcome for outcome in self.outcomes if outcome.failed is not None]


def map_sources(
    urls: Iterable[str],
    to: str,
    task: Task,
    engine: Engine,
    *,
    part: tuple[int, int] = (1, 1),
    progress: Callable[[MapProgress], None] = lambda _: None,
) -> MapProgress:
    """Summarise the sources at ``urls`` into the storage ``to``, except those that have a summary.

    ``part`` is (i, n): the i-th of n shares, from 1.
    """
    storage = storage_at(to)
    sources = [source for source in part_of(list_sources(urls), *part) if not source.url.startswith(f"{storage.url}/")]
    stored = storage.names()
    remaining = [source for source in sources if summary_name(source) not in stored]
    mapped = MapProgress(len(sources), len(sources) - len(remaining))
    progress(mapped)
    summaries_by_source: dict[str, list[str]] = {}
    for name in stored:
        summaries_by_source.setdefault(name.partition("-")[0], []).append(name)
    by_url = {source.url: source for source in remaining}
    if not remaining:
        return mapped
    with closing(engine(task, remaining, to)) as outcomes:
        for outcome in outcomes:
            mapped.outcomes.append(outcome)
            if outcome.failed is None:
                for outdated in summaries_by_source.pop(_name_of_source(by_url[outcome.url]), ()):
                    # An older version of the source or of our code made this summary.
                    storage.remove(outdated)
            progress(mapped)
    return mapped


def summary_name(source: SourceVersion) -> str:
    """Return the name of a source's summary, from its address, the version of its bytes and our code."""
    version = hashlib.sha256(f"{source.state} {ANALYSIS_VERSION} {SUMMARY_VERSION}".encode()).hexdigest()[:12]
    return f"{_name_of_source(source)}-{version}{SUFFIX}"


def is_summary(name: str) -> bool:
    """Return whether an object with that name is a summary."""
    return name.endswith(SUFFIX)


def _name_of_source(source: SourceVersion) -> str:
    return hashlib.sha256(source.url.encode()).hexdigest()[:16]
