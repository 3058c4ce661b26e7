"""The answer of NCCL's flight recorder as a sentence, text, Markdown and JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sawtooth.analysis.dumps.hung_collective import UNKNOWN_RANK, FlightReport, Hang, RankState
from sawtooth.analysis.knowledge.frames import is_user_line
from sawtooth.app import format as fmt
from sawtooth.app.printable import aligned
from sawtooth.app.reports.escaped import as_written, for_terminals, table
from sawtooth.ingest.dumps.flight_recorder import Entry, StackFrame

COLUMNS = ("rank", "at this call", "its last call in the group", "waits elsewhere", "code")
NAME_LENGTH = 60  # Longer names are cut to this many characters.
MIN_DELAY_MS = 1.0  # A shorter delay of a rank is not reported, because clocks of hosts differ by as much.


def headline(report: FlightReport) -> str:
    """Return which collective hangs and which ranks are missing, in one sentence."""
    if not report.hangs:
        if not report.entries:
            return "The flight recorder contains no calls. It was off, or nothing was called yet."
        if report.completed < report.entries:
            incomplete = fmt.many(report.entries - report.completed, "recorded call")
            return f"{incomplete} did not complete, although no rank is missing. Check the network and the GPUs."
        calls = fmt.many(report.entries, "recorded call")
        subject = f"all {calls} are" if report.entries > 1 else f"the {calls} is"
        return f"No collective hangs: {subject} completed on {_ranks_or_recorded(report.ranks)}."
    hang = report.hangs[0]
    call = _call(hang)
    waiting, missing = hang.in_state("waiting"), hang.in_state("missing")
    if hang.kind == "different":
        calls = ", ".join(f"{fmt.clean(name, NAME_LENGTH)} on {ranks_text(ranks)}" for name, ranks in hang.calls.items())
        return f"Ranks disagree on call {hang.seq} of group {_group(hang)}: {calls}."
    if hang.kind == "sizes":
        sizes = ", ".join(f"{fmt.clean(size, NAME_LENGTH)} on {ranks_text(ranks)}" for size, ranks in hang.calls.items())
        return f"The sizes of {call} differ: {sizes}."
    if hang.kind == "stuck":
        return f"All {len(hang.members)} ranks have called {call}, but it does not complete. Check the network and the GPUs."
    if hang.is_p2p:
        return _point_to_point(hang)
    if hang.kind == "alone":
        subject = _capital(_ranks_or_recorded(waiting))
        return f"{subject} {_waits(waiting)} in {call}. Without dumps of the other ranks, the missing ranks are not known."
    has, pronoun = ("has", "It") if len(missing) == 1 else ("have", "They")
    elsewhere = _waits_elsewhere(hang, f"{pronoun} {_waits(missing)}")
    who_waits = f"{_ranks_or_recorded(waiting)} {_waits(waiting)}"
    return f"{_capital(ranks_text(missing))} {has} not called {call}; {who_waits} in it.{elsewhere}"


def _point_to_point(hang: Hang) -> str:
    """Return which rank waits for which other rank in a send or a receive."""
    partner = ranks_text([hang.ranks[1].rank])
    begin = f"{_capital(ranks_text([hang.ranks[0].rank]))} waits to {hang.operation} in group {_group(hang)}"
    if hang.kind == "alone":
        return f"{begin}; there is no dump of {partner}."
    return f"{begin}; {partner} has not made the matching call.{_waits_elsewhere(hang, 'It waits')}"


def _waits_elsewhere(hang: Hang, who_waits: str) -> str:
    """Return in which other call a missing rank waits, as a sentence; "" if this is not known."""
    call = next((rank.waits_in for rank in hang.ranks if rank.state == "missing" and rank.waits_in is not None), None)
    return f" {who_waits} in {_name_of(call)} instead." if call is not None else ""


def details(report: FlightReport) -> list[str]:
    """Return the lines below the headline: since when, ranks without a dump, other groups, late ranks."""
    lines = []
    for hang in report.hangs[:1]:
        if hang.since_ns:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(hang.since_ns / 1e9))
            lines.append(f"First called at {since} UTC, with {fmt.clean(hang.sizes, NAME_LENGTH) or 'sizes not recorded'}.")
        if without_dump := hang.in_state("no dump"):
            lines.append(f"There is no dump of {ranks_text(without_dump)}, which may be missing too.")
    lines += [f"Also waiting: {_call(hang)} on {_ranks_or_recorded(hang.in_state('waiting'))}." for hang in report.hangs[1:]]
    late = max(report.delays, key=lambda rank_delay: rank_delay.mean_ms, default=None)
    if late is not None and late.mean_ms >= MIN_DELAY_MS:
        group, delay = fmt.clean(late.group, NAME_LENGTH), fmt.duration_ms(late.mean_ms)
        often = f"It is the last rank in {fmt.share(late.last_share)} of {fmt.count(late.collectives)} calls."
        lines.append(
            f"By the hosts' clocks, rank {late.rank} is {delay} later than the first rank on average in the collectives of group {group}. {often}"
        )
    return lines


def rows(hang: Hang) -> list[tuple[str, ...]]:
    """Return a line for each rank of a hang, in the order of COLUMNS."""
    return [
        (
            "this rank" if rank.rank == UNKNOWN_RANK else str(rank.rank),
            "not called" if rank.state == "missing" else rank.state,
            _name_of(rank.last) if rank.last is not None else "",
            _name_of(rank.waits_in) if rank.waits_in is not None else "",
            _code(rank),
        )
        for rank in hang.ranks
    ]


def text(report: FlightReport) -> str:
    """Return the answer for a terminal."""
    lines = [headline(report), *details(report)]
    for hang in report.hangs:
        lines += ["", _call(hang), *aligned([COLUMNS, *rows(hang)])]
    return for_terminals(lines)


def markdown(report: FlightReport) -> str:
    """Return the answer as Markdown."""
    lines = [f"**{as_written(headline(report))}**", "", *(as_written(line) for line in details(report))]
    for hang in report.hangs:
        lines += ["", f"### {as_written(_call(hang))}", "", *table(COLUMNS, rows(hang), words=len(COLUMNS))]
    return "\n".join(lines) + "\n"


def plain_data(report: FlightReport) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "headline": headline(report),
        "details": details(report),
        "ranks": [rank for rank in report.ranks if rank != UNKNOWN_RANK],
        "calls": report.entries,
        "completed": report.completed,
        "hangs": [
            {
                "kind": hang.kind,
                "group": hang.group,
                "description": hang.description,
                "members": list(hang.members),
                "operation": hang.operation,
                "number": hang.seq,
                "sizes": hang.sizes,
                "since_ns": hang.since_ns,
                "waiting": list(hang.in_state("waiting")),
                "missing": list(hang.in_state("missing")),
                "no_dump": list(hang.in_state("no dump")),
                "calls": {name: list(ranks) for name, ranks in hang.calls.items()},
                "ranks": [dict(zip(COLUMNS, row, strict=True)) for row in rows(hang)],
            }
            for hang in report.hangs
        ],
        "lateness": [
            {"group": e.group, "rank": e.rank, "collectives": e.collectives, "mean_ms": e.mean_ms, "last_share": e.last_share}
            for e in report.delays
        ],
    }


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in words, such as "rank 3" or "ranks 0 to 2 and 5"."""
    if not ranks:
        return "no rank"
    ranges = []
    for _, neighbours in groupby(enumerate(sorted(ranks)), key=lambda pair: pair[1] - pair[0]):
        numbers = [rank for _, rank in neighbours]
        ranges += [f"{numbers[0]} to {numbers[-1]}"] if len(numbers) > 2 else [str(rank) for rank in numbers]
    text = ranges[0] if len(ranges) == 1 else f"{', '.join(ranges[:-1])} and {ranges[-1]}"
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _ranks_or_recorded(ranks: Sequence[int]) -> str:
    return "the recorded rank" if UNKNOWN_RANK in ranks else ranks_text(ranks)


def _waits(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _group(hang: Hang) -> str:
    return fmt.clean(hang.description or hang.group, NAME_LENGTH)


def _call(hang: Hang) -> str:
    if hang.is_p2p:
        return f"{fmt.clean(hang.operation, NAME_LENGTH)} in group {_group(hang)}"
    return f"{fmt.clean(hang.operation, NAME_LENGTH)} {hang.seq} of group {_group(hang)}"


def _name_of(entry: Entry) -> str:
    number = "" if entry.is_p2p else f" {entry.seq}"
    group = entry.process_group[1] or entry.process_group[0]
    return f"{fmt.clean(entry.operation, NAME_LENGTH)}{number} of group {fmt.clean(group, NAME_LENGTH)}"


def _code(state: RankState) -> str:
    """Return the user's innermost line of the call, else the innermost line."""
    users = (frame for frame in state.frames if is_user_line(f"{frame.filename}({frame.line}): {frame.name}"))
    frame: StackFrame | None = next(users, None) or next(iter(state.frames), None)
    if frame is None:
        return ""
    return fmt.clean(f"{frame.name} ({frame.filename.replace(chr(92), '/').rpartition('/')[2]}:{frame.line})", NAME_LENGTH)
