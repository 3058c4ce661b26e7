"""The step time of a pipeline with equal work, and the rank or stage with the most excess work.

The method is from "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025). The paper replays all
operations, this module only communication calls. A rank's own time before a call becomes the mean over its stage's ranks and all
steps. Then the own times of each stage are scaled so that all stages have the same total, and each transfer becomes its median.
The slowdown is the step time of a replay with the recorded times ÷ the step time of a replay with equal work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.detection import MIN_GAIN_SHARE
from sawtooth.analysis.ranks.stragglers.excess import PERSISTENT_SHARE
from sawtooth.analysis.ranks.stragglers.reasons import MAX_SINGLE_REPLAYS
from sawtooth.analysis.run.job import Straggler

MIN_EXPLAINED_SHARE = 0.5  # A rank or stage is reported if it explains at least this share of the time lost to unequal work.

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class UnequalWorkCost:
    """The cost of unequal work for a pipeline.

    ``slowdown`` is the step time ÷ the step time with equal work. ``stragglers`` has the rank or stage that explains most of
    this time; it is empty if none does.
    """

    slowdown: float
    stragglers: tuple[Straggler, ...]


def unequal_work_cost(
    job: RecordedJob, stages: Sequence[Sequence[int]], ranks: Sequence[int | None], hosts: Sequence[str | None]
) -> UnequalWorkCost | None:
    """Return the cost of unequal work for ``job``.

    None if no step is counted or all ranks are in one stage. ``stages[p]`` lists the positions of all ranks in the stage of the
    rank at position p. The other sequences are indexed by position too.
    """
    members = list({id(stage): list(stage) for stage in stages}.values())
    if not job.counted.any() or len(members) < 2:
        return None
    calls = _calls(job, members)
    job = replace(job, own=calls["own"].to_numpy(np.float64))
    step_ms = _step_ms(job)
    ideal_ms = _step_ms(replace(job, own=_even_out(calls, calls["usual"]), transfer=_usual_transfers(job, calls)))
    lost_ms = step_ms - ideal_ms
    late: Straggler | None = None
    if ideal_ms > 0 and lost_ms >= MIN_GAIN_SHARE * step_ms:
        rank, stage = _rank(job, calls, ranks, hosts), _stage(job, calls, members, ranks)
        late = max(
            (straggler for straggler in (rank, stage) if straggler is not None),
            key=lambda straggler: straggler.gain_ms,
            default=None,
        )
    is_reported = late is not None and late.gain_ms >= max(MIN_EXPLAINED_SHARE * lost_ms, MIN_GAIN_SHARE * step_ms)
    return UnequalWorkCost(step_ms / ideal_ms if ideal_ms > 0 else 1.0, (late,) if late is not None and is_reported else ())


def _calls(job: RecordedJob, members: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Return the job's calls with step, stage, place in the step, and the usual own time before them.

    ``usual`` is the mean own time (ns) of all ranks in the stage at this place. ``others`` is the mean of the stage's other
    ranks; it equals ``usual`` in a stage with one rank.
    """
    stage = np.zeros(job.ranks, np.int64)
    for number, positions in enumerate(members):
        stage[list(positions)] = number
    calls = pd.DataFrame(
        {
            "position": job.position,
            "step": np.repeat(job.step, np.diff(job.first, append=len(job.position))),
            "stage": stage[job.position],
            "own": job.own,
        }
    )
    # Some ranks make additional calls, such as a reduction of a logged value. So places are counted among calls with the same number
    # of members.
    size = np.diff(job.first, append=len(job.position))
    calls["size"] = np.repeat(size, size)
    calls["place"] = calls.groupby(["position", "step", "size"]).cumcount()
    # Nothing was recorded before a rank's first call, so its own time is set to the mean before that call in other steps.
    unknown = ~calls.duplicated("position")
    own_or_missing = calls["own"].mask(unknown)
    calls["own"] = own_or_missing.fillna(
        own_or_missing.groupby([calls["position"], calls["size"], calls["place"]]).transform("mean")
    ).fillna(0.0)
    same_call = calls.groupby(["stage", "size", "place"])["own"]
    by_place = calls.groupby(["position", "size", "place"])["own"]
    total, count = same_call.transform("sum"), same_call.transform("size")
    count_of_others = count - by_place.transform("size")
    calls["usual"] = total / count
    calls["others"] = ((total - by_place.transform("sum")) / count_of_others.where(count_of_others > 0)).fillna(calls["usual"])
    return calls


def _even_out(calls: pd.DataFrame, own_ns: pd.Series) -> F64:
    """Return ``own_ns`` scaled so that the sum per rank is the same in all stages."""
    sum_per_rank = own_ns.groupby(calls["stage"]).sum() / calls.groupby("stage")["position"].nunique()
    factors = sum_per_rank.mean() / sum_per_rank.where(sum_per_rank > 0)
    return (own_ns * calls["stage"].map(factors).fillna(1.0)).to_numpy(np.float64)


def _usual_transfers(job: RecordedJob, calls: pd.DataFrame) -> F64:
    first = calls.iloc[job.first]
    transfer = pd.Series(job.transfer, index=first.index)
    return transfer.groupby([first["stage"], first["size"], first["place"]]).transform("median").to_numpy(np.float64)


def _step_ms(job: RecordedJob) -> float:
    return float(job.steps_ns()[job.counted].mean()) / 1e6


def _rank(job: RecordedJob, calls: pd.DataFrame, ranks: Sequence[int | None], hosts: Sequence[str | None]) -> Straggler | None:
    """Return the rank that delays the job most; None if no rank does.

    A rank counts only if it takes longer in most steps than the mean of its stage's other ranks.
    """
    counted = calls["step"].isin(np.flatnonzero(job.counted))
    excess = (calls["own"] - calls["others"])[counted].groupby([calls["position"], calls["step"]]).sum().unstack()
    excess_ms = excess[(excess > 0).mean(axis=1) > PERSISTENT_SHARE].mean(axis=1) / 1e6
    best: Straggler | None = None
    for position, own_ms in excess_ms.nlargest(MAX_SINGLE_REPLAYS).items():
        without = np.where(calls["position"] == position, calls["others"], calls["own"])
        gain_ms = _step_ms(job) - _step_ms(replace(job, own=without))
        if best is None or gain_ms > best.gain_ms:
            at = int(str(position))
            best = Straggler("rank", (at,), (ranks[at],), hosts[at], None, None, float(own_ms), gain_ms)
    return best


def _stage(
    job: RecordedJob, calls: pd.DataFrame, members: Sequence[Sequence[int]], ranks: Sequence[int | None]
) -> Straggler | None:
    """Return the stage with the most own time, and the job's gain if all stages have equal time."""
    counted = calls[calls["step"].isin(np.flatnonzero(job.counted))]
    sums = counted.groupby("stage")["own"].sum() / counted.groupby("stage")["position"].nunique()
    worst = int(sums.idxmax())
    own_ms = float(sums[worst] - sums.drop(worst).mean()) / int(job.counted.sum()) / 1e6
    gain_ms = _step_ms(job) - _step_ms(replace(job, own=_even_out(calls, calls["own"])))
    positions = tuple(members[worst])
    return Straggler("stage", positions, tuple(ranks[p] for p in positions), None, None, None, own_ms, gain_ms)
