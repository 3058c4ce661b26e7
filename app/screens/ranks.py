"""The Ranks screen: which rank computes, which waits, and for which rank the others wait."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.ranks.communication import side_by_side
from sawtooth.analysis.ranks.heatmap import stalls_of
from sawtooth.analysis.ranks.stragglers.sentences import NAMED_RANKS, straggler_cause, straggler_name
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import ranks as charts
from sawtooth.app.page import basis, cards, current_result, frame, panel
from sawtooth.app.page.parts import first_change, rank_panels
from sawtooth.app.words import predicted_gain
from sawtooth.app.words import run as words
from sawtooth.app.words.headline import about_now

MAX_BARS = 16  # Ranks drawn side by side; of more ranks, only the most important are drawn.
MIN_SHOWN_GAIN_MS = 0.0005  # In ms. A smaller gain would be shown as 0.
MAX_NAMED = 32  # Late ranks that a line lists.
INGEST = "sawtooth ingest rank*.trace.json.gz"
STRAGGLER_COLUMNS = ("Late rank", "Host", "Cause", "Longer than its peers", "A step gains")


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    if result.lead is None:
        cards.headline("How the ranks worked together is not known.")
        current_result.what_is_missing(result)
        return
    communication = result.communication
    if communication is None:
        _one_trace(result, result.lead)
        return
    sentence, under, about_gain = _finding(result, communication)
    cards.headline(sentence, under)
    if about_gain:
        cards.small(about_gain)
    first_change.show(result)
    of_many = communication.job_ranks is not None
    other = rank_panels.late_in_the_profile(result, communication)
    if other is not None:  # The map of the profiled steps contradicts the headline, so the bars of the run come first.
        _side_by_side(result, communication, in_profile=True)
        cards.caution(other)
    if len(communication.rows) or communication.heat is not None:  # Representatives may have no common collective.
        rank_panels.heat(result, communication)
    for note in communication.notes if len(communication.rows) or communication.unmatched else ():
        cards.small(note)
    _stragglers(result, communication)
    if not of_many and other is None:
        _side_by_side(result, communication)
    if len(communication.rows):
        rank_panels.who_waits(result, communication)
    rank_panels.pipeline(result, communication)
    if of_many:
        _side_by_side(result, communication)
    if len(communication.rows) or communication.groups:
        frame.link("communication", "Which collectives run, and how fast", icon=":material/lan:")


def _side_by_side(result: RunResult, communication: Communication, *, in_profile: bool = False) -> None:
    """Show how long each rank computes and waits.

    With ``in_profile``, the title says whether it is about the profiled steps or about the run, because they differ.
    """
    shown = _ranks_to_draw(result, communication)
    estimated = all(any(row.ms_per_step_unprofiled_est is not None for row in rank.ledger) for rank in shown)
    unprofiled = estimated and basis.switch(result.lead or shown[0]) == "unprofiled"
    rows = side_by_side(shown, unprofiled=unprofiled)
    waits = {(of_rank.rank, of_rank.device): of_rank for of_rank in communication.ranks}
    waits_of_ranks = [waits.get((rank.rank, rank.device)) for rank in shown]
    rows = rows.assign(**{share: [getattr(wait, share, None) for wait in waits_of_ranks] for share in charts.EXTRA_COLUMNS})
    finding = charts.title(rows, numbered=not communication.stragglers)
    if communication.job_ranks is not None:
        finding = f"Of the {len(shown)} ranks that are opened here: {finding[0].lower()}{finding[1:]}"
    if in_profile:
        finding = rank_panels.on_basis(finding, unprofiled=unprofiled)
    unit = "ms per step, ≈ without the profiler" if unprofiled else f"{words.unit_of(shown[0])}, as profiled"
    panel.show_bars(charts.side_by_side(rows, finding, unit, dark=frame.is_dark()), "ranks")


def _one_trace(result: RunResult, rank: RankResult) -> None:
    """Say that the run has only one rank, or that the traces of the other ranks are missing."""
    world = rank.trace.world_size or 1
    distributed = world > 1 or (rank.categories["category"] == "communication").any()
    if not distributed:
        rank_panels.one_gpu("This run trains on one GPU, so no rank waits for another.", "ranks", result, rank)
        return
    traced = f"one of {world} ranks" if world > 1 else "one rank"
    cards.headline(f"This run has the trace of {traced} only, so waits between ranks are not known.")
    cards.empty_state(
        "The traces of the other ranks are missing.",
        "Each process of a distributed job writes its own trace. Ingest them together to make one run.",
        INGEST,
    )


def _ranks_to_draw(result: RunResult, communication: Communication) -> list[RankResult]:
    """Return at most ``MAX_BARS`` ranks to draw: late ranks, then the lead, then those that wait longest."""
    late = [position for straggler in communication.stragglers for position in straggler.positions]
    lead = [position for position, rank in enumerate(result.ranks) if rank is result.lead]
    waiting = [waits.position for waits in sorted(communication.ranks, key=lambda waits: -waits.wait_ms)]
    drawn = list(dict.fromkeys([*late[: MAX_BARS // 2], *lead, *waiting]))[:MAX_BARS]
    return sorted((result.ranks[position] for position in drawn), key=lambda rank: -1 if rank.rank is None else rank.rank)


def _finding(result: RunResult, communication: Communication) -> tuple[str, str | None, str]:
    """Return the headline (which rank delays the job and why), the gain and remedy, and a note."""
    finding = next((f for f in result.findings if "late_rank" in f.explains.topics), None)
    if not communication.stragglers:
        if finding is not None:  # A rank is late only in the profile, which the map below shows.
            return f"{finding.title}.", finding.fix, ""
        return _no_straggler(result, communication), _of_pipeline(result) if communication.schedule is not None else None, ""
    late = communication.stragglers[0]
    name, reason = straggler_name(late, result.ranks), straggler_cause(late)
    name, by = f"{name[0].upper()}{name[1:]}", f" ({reason})" if reason else ""
    step_ms = result.lead.best.ms if result.lead is not None else None
    if (stalled := stalls_of(late, result.ranks, communication)) is not None:
        sentence = f"{name} stalls about {fmt.duration_ms(stalled.mean_ms)} in {stalled}; the others wait."
        lost = f"That is ≈\u00a0{fmt.duration_ms(late.own_ms)} of a step on average{by}. "
    else:
        verb = "delay" if late.at_most or (len(late.ranks) > 1 and late.kind != "host") else "delays"
        delays = f"{name} {'may ' if late.at_most else ''}{verb} the job"
        sentence, lost = f"{delays}: ≈\u00a0{fmt.duration_ms(late.own_ms)} per step longer than the others{by}.", ""
    if finding is not None and finding.predicted_step_ms is not None and step_ms is not None:
        gain_ms = step_ms - finding.predicted_step_ms
        gain = f"Without the delay, a step takes ≈\u00a0{fmt.duration_ms(finding.predicted_step_ms)}{_interval(finding)}."
    else:
        gain_ms = late.gain_ms
        gain = f"Without the delay, a step is {'at most' if late.at_most else '≈'} {fmt.duration_ms(gain_ms)} shorter."
    fix = finding.fix if finding is not None else ""
    return sentence, f"{lost}{gain} {fix}".strip(), predicted_gain.delay_and_gain(late, gain_ms)


def _interval(finding: Finding) -> str:
    """Return the interval of the step that a finding predicts, in brackets."""
    low, high = finding.predicted_low_ms, finding.predicted_high_ms
    return f" ({fmt.span_ms(low, high)})" if low is not None and high is not None else ""


def _of_pipeline(result: RunResult) -> str | None:
    """Return the change that shrinks the pipeline bubble, and its gain; None if there is no such change."""
    finding = next((f for f in result.findings if "schedule" in f.explains.topics), None)
    if finding is None or finding.predicted_step_ms is None or result.lead is None or result.lead.best.ms is None:
        return finding.fix if finding is not None else None
    return f"{finding.fix} {fmt.step_change(result.lead.best.ms, finding.predicted_step_ms, about=about_now(result))} per step."


def _no_straggler(result: RunResult, communication: Communication) -> str:
    if (schedule := communication.schedule) is not None:
        return (
            f"No rank is a straggler; the pipeline's bubble is {fmt.share(schedule.bubble_share)} of a step. "
            f"With {schedule.microbatches} microbatches on equal stages it would be {fmt.share(schedule.ideal_share)}."
        )
    if len(communication.rows) or communication.job_ranks is not None:
        return "No rank is a straggler: none takes longer than its peers by more than the estimates' error."
    if not communication.unmatched:
        return f"{len(result.ranks)} GPUs are recorded, and no collective joins them: each works by itself."
    return f"{len(result.ranks)} GPUs are recorded; their collectives cannot be matched, so it is not known which rank waits for which."


def _stragglers(result: RunResult, communication: Communication) -> None:
    """Show all stragglers with cause and gain.

    A single straggler is already in the headline, so only its rank numbers are listed, if it has many.
    """
    stragglers = communication.stragglers
    if len(stragglers) == 1 and len(stragglers[0].ranks) > NAMED_RANKS:
        numbers = [str(rank) for rank in stragglers[0].ranks if rank is not None]
        further = f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
        cards.small(f"Late: ranks {', '.join(numbers[:MAX_NAMED])}{further}." if numbers else "")
    if len(stragglers) < 2:
        return
    table = pd.DataFrame(
        [
            {
                "who": straggler_name(late, result.ranks),
                "host": late.host or ", ".join(sorted({host for p in late.positions if (host := result.ranks[p].host)})),
                "why": straggler_cause(late),
                "own_ms": late.own_ms,
                "gain_ms": late.gain_ms,
            }
            for late in stragglers
        ]
    )
    cards.title("Late ranks, the causes, and the gain without each")
    cells = [
        (
            str(row["who"]),
            str(row["host"]),
            str(row["why"] or "not known"),
            fmt.duration_ms(row["own_ms"]),
            fmt.duration_ms(row["gain_ms"]) if row["gain_ms"] >= MIN_SHOWN_GAIN_MS else "nothing alone",
        )
        for row in table.to_dict("records")
    ]
    cards.table(STRAGGLER_COLUMNS, cells, "Stragglers")
    panel.csv_button(table, "stragglers")


main()
