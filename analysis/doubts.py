"""Effects of failed checks on the numbers of a rank and of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sawtooth.analysis.integrity import lost_records
from sawtooth.analysis.integrity.failed_check import FailedCheck, deciding_check, weaken_metrics
from sawtooth.analysis.metrics.reading import missing
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.run.model import RankResult


def without_invalid_numbers(rank: RankResult) -> RankResult:
    """Return the rank with its failed checks, and without the numbers that these checks invalidate."""
    failed = tuple(check for check in _failed_checks(rank) if check is not None)
    if not failed:
        return rank
    best, ledger, phases = rank.best, rank.ledger, rank.phases
    if (decisive := deciding_check(failed)) is not None:
        ledger, phases = [], []
        if decisive.effects.get("best_step_time_ms") == "unknown":
            withdrawn = missing(decisive.sentence)
            best = replace(best, reading=withdrawn, profiled=withdrawn, estimate=withdrawn, evidence=(), represented=True)
    metrics = weaken_metrics(rank.metrics, failed)
    return replace(rank, failed=failed, best=best, ledger=ledger, phases=phases, metrics=metrics)


def _failed_checks(rank: RankResult) -> Iterable[FailedCheck | None]:
    lost = lost_records.check(rank.facts, timed=STEP_SOURCES[rank.best.source].timed, steps=len(rank.steps))
    is_explained = lost is not None and lost.headline is not None
    yield from (check for check in rank.failed if not (is_explained and check.key in lost_records.CONSEQUENCES))
    yield lost


def failed_of(ranks: Sequence[RankResult], lead: RankResult | None) -> tuple[FailedCheck, ...]:
    """Return the failed checks of all ranks, the lead's first; texts of other ranks name the rank."""
    other_ranks = [rank for rank in ranks if rank is not lead]
    failed = lead.failed if lead is not None else ()
    return (*failed, *(_of_rank(check, rank) for rank in other_ranks for check in rank.failed if check not in failed))


def _of_rank(check: FailedCheck, rank: RankResult) -> FailedCheck:
    rank_in_words = f"rank {rank.rank}" if rank.rank is not None else f"device {rank.device}"
    headline = f"Of {rank_in_words}: {check.headline[0].lower()}{check.headline[1:]}" if check.headline is not None else None
    return replace(
        check, sentence=f"Of {rank_in_words}: {check.sentence}", headline=headline, evidence=(*check.evidence, "other_ranks")
    )


def diagnostics_of(failed: Iterable[FailedCheck]) -> list[Diagnostic]:
    """Return the failed checks as diagnostics."""
    return [Diagnostic(check.key, check.severity, f"{check.sentence} {check.advice}".strip(), check.count) for check in failed]
