"""Several ranks: who computes, who waits, and which rank the others wait for."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from sawtooth.analysis.ranks.communication import collective_table, side_by_side
from sawtooth.analysis.ranks.lateness import who, why
from sawtooth.analysis.run.model import Communication, RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import ranks as charts
from sawtooth.app.page import basis, cards, current, frame, panel, rank_panels

SKEW_SHARE = 0.03  # of a profiled step: less is not worth a sentence
MOST_BARS = 16  # ledgers side by side: of more, those that matter
WAITS = {
    "label": "Rank",
    "wait_ms": "Waiting in collectives, ms per step",
    "late_ms": "Others wait for it under the profiler, ms per step",
    "last_share": "Collectives it joins last",
    "overlap_share": "Communication overlapped by compute",
}
LATE = {
    "who": "Late",
    "host": "Host",
    "why": "Loses it to",
    "own_ms": "Longer than its peers, ms per step",
    "gain_ms": "A step gains, ms",
}
COLLECTIVES = {
    "name": "Collective",
    "group": "Group",
    "group_size": "Ranks",
    "bytes": "Bytes",
    "calls_per_step": "Calls per step",
    "transfer_ms": "Transfer, ms (median call)",
    "mean_wait_ms": "Mean wait, ms",
    "longest_wait_ms": "Longest wait, ms",
    "wait_ms_per_step": "Waiting, ms per step",
    "bus_gb_s": "Bus bandwidth, GB/s",
    "algorithm_gb_s": "Algorithm bandwidth, GB/s",
}


def main() -> None:
    """Show the page."""
    result = current.run_result()
    if result.lead is None:
        cards.headline("How the ranks worked together is not known.")
        current.what_is_missing(result)
        return
    communication = result.communication
    if communication is None:
        _one_trace(result.lead)
        return
    cards.headline(_finding(result, communication))
    share = result.metrics["exposed_comm_share"]
    if share.value is not None:
        cards.small(f"{fmt.share(share.value)} of the slowest rank's step is communication that no compute overlaps.")
    for note in communication.notes:
        cards.small(note)
    _late_in_the_profile(result, communication)
    _late(result, communication)
    known = len(communication.rows) > 0 or communication.heat is not None  # representatives may share no collective
    if known:
        rank_panels.heat(result, communication)
    if len(communication.rows):
        rank_panels.who_waits(result, communication)
    rank_panels.pipeline(result, communication)
    rank_panels.groups(communication)
    shown = _shown(result, communication)
    estimated = all(any(row.ms_per_step_unprofiled_est is not None for row in rank.ledger) for rank in shown)
    unprofiled = estimated and basis.switch(result.lead) == "unprofiled"
    rows = side_by_side(shown, unprofiled=unprofiled)
    panel.show(charts.side_by_side(rows, charts.title(rows), dark=frame.dark(), unprofiled=unprofiled), "ranks")
    if known:
        _waits(side_by_side(result.ranks), communication)
    if len(communication.rows):
        _collectives(communication, len(result.lead.counted))


def _one_trace(rank: RankResult) -> None:
    """Say that nobody waits for others, or that the others' traces are missing."""
    world = rank.trace.world_size or 1
    distributed = world > 1 or (rank.categories["category"] == "communication").any()
    if not distributed:
        cards.headline("This run trains on one GPU: there are no ranks that could wait for each other.")
        return
    of = f"one of {world} ranks" if world > 1 else "one rank"
    cards.headline(f"This run has the trace of {of} only, so waits between ranks are not known.")
    cards.empty_state(
        "The traces of the other ranks are missing.",
        "Each process of a distributed job writes its own trace. Ingest them together to make one run.",
        "sawtooth ingest rank*.trace.json.gz",
    )


def _shown(result: RunResult, communication: Communication) -> list[RankResult]:
    """Return the ranks whose ledgers stand side by side: all of a few, else the late ones, the lead, and those that wait most."""
    late = [position for straggler in communication.stragglers for position in straggler.positions]
    lead = [position for position, rank in enumerate(result.ranks) if rank is result.lead]
    waiting = [waits.position for waits in sorted(communication.ranks, key=lambda waits: -waits.wait_ms)]
    kept = list(dict.fromkeys([*late[: MOST_BARS // 2], *lead, *waiting]))[:MOST_BARS]
    return sorted((result.ranks[position] for position in kept), key=lambda rank: -1 if rank.rank is None else rank.rank)


def _finding(result: RunResult, communication: Communication) -> str:
    if not communication.stragglers:
        if (schedule := communication.schedule) is not None:
            return (
                f"No rank is a straggler; the pipeline's stages wait {fmt.share(schedule.bubble_share)} of a step. "
                f"With {schedule.microbatches} microbatches equal stages would wait {fmt.share(schedule.ideal_share)}."
            )
        if len(communication.rows):
            return "No rank is a straggler: none takes longer than its peers by more than the estimates' error."
        return f"{len(result.ranks)} devices side by side; their collectives cannot be matched."
    late = communication.stragglers[0]
    name, reason = who(late, result.ranks), why(late)
    by = f" ({reason})" if reason else ""
    gains = f"at most {fmt.duration_ms(late.gain_ms)}" if late.at_most else fmt.duration_ms(late.gain_ms)
    return (
        f"{name[0].upper()}{name[1:]} hold{'' if len(late.ranks) > 1 and late.kind != 'host' else 's'} the job up: "
        f"{fmt.duration_ms(late.own_ms)} of each step longer than the others{by}. "
        f"A step gains {gains} without it."
    )


def _late_in_the_profile(result: RunResult, communication: Communication) -> None:
    """Say that the profile shows another rank late than the run does, where it does: what is below would contradict the headline."""
    if not communication.stragglers or communication.job_ranks is not None:
        return
    late = communication.stragglers[0].positions
    first = max(communication.ranks, key=lambda waits: waits.late_ms)
    here = max((waits.late_ms for waits in communication.ranks if waits.position in late), default=first.late_ms)
    if first.late_ms - here >= SKEW_SHARE * (result.ranks[first.position].best.mean_ms or 0.0) > 0:
        name = f"rank {first.rank}" if first.rank is not None else f"device {first.device}"
        cards.small(
            f"Under the profiler the others wait for {name} instead, {fmt.duration_ms(first.late_ms)} of each step: recording slows its host. What is "
            "below is as profiled where it says so; the sentence above is of the run without the profiler."
        )


def _late(result: RunResult, communication: Communication) -> None:
    if len(communication.stragglers) < 2:
        return
    table = pd.DataFrame(
        [
            {
                "who": who(late, result.ranks),
                "host": late.host or ", ".join(sorted({host for p in late.positions if (host := result.ranks[p].host)})),
                "why": why(late),
                "own_ms": late.own_ms,
                "gain_ms": late.gain_ms,
            }
            for late in communication.stragglers
        ]
    )
    cards.title("Who is late, why, and what a step gains without it")
    panel.table(table, LATE, "stragglers")


def _waits(rows: pd.DataFrame, communication: Communication) -> None:
    table = pd.DataFrame([asdict(rank) for rank in communication.ranks]).assign(label=charts.labels_of(rows))
    table = table.sort_values("rank", kind="stable")
    most = table.loc[table["wait_ms"].idxmax()]
    cards.title(
        f"{str(most['label']).capitalize()} waits most: {fmt.duration_ms(float(most['wait_ms']))} of each step in collectives"
    )
    panel.table(table, WAITS, "waits")
    cards.small(
        "A collective ends on all ranks once the last one has joined: its shortest duration over the ranks is the transfer, and any time "
        "beyond it is waiting, whether compute overlaps it or not."
    )


def _collectives(communication: Communication, steps: int) -> None:
    table = collective_table(communication, steps)
    first = table.iloc[0]
    cards.title(
        f"{fmt.clean(str(first['name']), 40)} waits most: {fmt.duration_ms(float(first['wait_ms_per_step']))} a step, mean of the ranks"
    )
    panel.table(table, {c: h for c, h in COLLECTIVES.items() if table[c].notna().any()}, "collectives")
    if communication.unmatched:
        cards.small(
            f"Not included, because they have no counterpart on another rank: {fmt.many(communication.unmatched, 'communication kernel')}."
        )


main()
