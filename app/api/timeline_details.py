"""``/api/v1/runs/{run}/timeline/…``: details for a click, a selection or a search, as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables import timeline_details as tables
from sawtooth.app.api.answers import json
from sawtooth.app.api.timeline import answered, number, opened, rank_of, requested_result
from sawtooth.app.charts.rankings import distinct_names, short_name
from sawtooth.app.theme import UNKNOWN, Colour, colour_of
from sawtooth.app.words import timeline as words
from sawtooth.app.words.answer.step import StepAnswer, answer_of
from sawtooth.app.words.lost_time import REST
from sawtooth.ingest.errors import UsageError

OUTSIDE = Colour("outside the GPU's work", "#C4C9CF", "#4A5058")
UNCOUNTED = replace(UNKNOWN, label="lost outside counted steps")
MIN_REST_SHARE = 0.001  # Share of a view. A smaller rest is a rounding error.
MIN_PART_SHARE = 0.005  # Share of a view. Smaller parts are added up in one row.
MAX_OPERATIONS = 8  # Operations of a time range. The table below the timeline has all operations.
NAME_LENGTH = 60  # Longer names of operations are cut to this many characters.
LISTED_LENGTH = 28  # Characters of a name in the list of operations: the width of the panel beside the lanes.
MAX_OCCURRENCES = 1000  # Flags on the timeline. More flags could not be distinguished.


def _slice(request: Request) -> Response:
    """Return a slice: its row, facts, links, stack and full name."""
    with opened(request) as rank:
        source = request.query_params.get("source", "")
        if source == "gaps":
            row = tables.gap_details(rank, number(request, "id"))
            gap: dict[str, Any] = {
                "slice": _slice_for_timeline({**row, "name": "", "kind": known_by(row["owner"], row["cause"])}, source),
                "links": [{**_slice_for_timeline(link, link["source"]), "role": link["role"]} for link in row["links"]],
                "same": None,
            }
            row["next_operation"] = short_name(row["next_operation"], NAME_LENGTH) if row["next_operation"] else None
            origin = timeline.extent(rank.recording).start_ns
            return json({**gap, **words.gap(row, requested_result(request), origin), "stack": words.stack(row["stack"])})
        details = tables.slice_details(rank, source, number(request, "id"))
        links = [{**_slice_for_timeline(link, link["source"]), "role": link["role"]} for link in details.links]
        title = short_name(str(details.row["name"]), NAME_LENGTH)
        return json(
            {
                "slice": _slice_for_timeline(details.row, source),
                "title": title,
                # A short full name repeats the title and is left out.
                "facts": [fact for fact in words.slice_facts(details) if fact[1] != title],
                "links": links,
                "stack": words.stack(details.stack),
                "same": {**details.same, "name_id": details.row["name_id"]},
            }
        )


def _slice_for_timeline(row: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a slice in the form that the timeline's component expects."""
    return {
        "source": source,
        "id": row.get("id", 0),
        "lane": row.get("lane", 0),
        "depth": row.get("depth", 0),
        "kind": row.get("kind") or "",
        "name": short_name(str(row["name"]), NAME_LENGTH),
        "start": row["start"],
        "end": row["start"] + row["dur"],
    }


def _time_range(request: Request) -> Response:
    """Return what takes the time between ``start`` and ``end``, and the longest operations."""
    with opened(request) as rank:
        start, end = number(request, "start"), number(request, "end")
        contents = tables.span_details(rank, start, end)
    operations, answer = contents.operations.head(MAX_OPERATIONS), _answer(request)
    names = listed_names(operations["name"].astype(str).tolist())
    return json(
        {
            "trusted": answer is not None,
            "works_share": contents.facts.works_share if contents.facts else None,
            "parts": _parts_of_view(contents, answer.names, end - start) if answer is not None else [],
            "operations": [
                {"name": name, "count": int(count), "ms": float(ms)}
                for name, count, ms in zip(names, operations["operations"], operations["ms"], strict=True)
            ],
        }
    )


def listed_names(names: Sequence[str]) -> list[str]:
    """Return names that differ in their first LISTED_LENGTH characters, because the list cuts the end."""
    long_names = [short_name(name, NAME_LENGTH) for name in names]
    times = Counter(name[:LISTED_LENGTH] for name in long_names)
    distinct = distinct_names(names, LISTED_LENGTH)
    return [name if times[name[:LISTED_LENGTH]] == 1 else other for name, other in zip(long_names, distinct, strict=True)]


def _parts_of_view(contents: tables.SpanDetails, names: Mapping[str, str], length_ns: float) -> list[dict[str, Any]]:
    """Return what takes the time of a view: useful work by owner and lost time by cause, largest first.

    The parts sum to the view. Lost time without a cause and time outside the GPU's work are parts too.
    """
    facts = contents.facts
    if facts is None:
        return []
    works = [(owner, None, ns / 1e6) for owner, ns in contents.owners if owner not in LOST_OWNERS]
    rest_ms = length_ns / 1e6 - sum(ns for _, ns in contents.owners) / 1e6
    other_parts = [
        _part(colour, colour.label, ms)
        for colour, ms in ((UNCOUNTED, facts.uncounted_ms), (OUTSIDE, rest_ms))
        if ms * 1e6 >= MIN_REST_SHARE * length_ns
    ]
    parts = sorted([*_by_label([*works, *facts.lost], names), *other_parts], key=lambda part: -part["ms"])
    small = [part for part in parts if part["ms"] * 1e6 < MIN_PART_SHARE * length_ns]
    if len(small) < 2:
        return parts
    return [*parts[: -len(small)], _part(UNKNOWN, REST, sum(part["ms"] for part in small))]


def _part(colour: Colour, label: str, ms: float) -> dict[str, Any]:
    return {"label": label, "light": colour.light, "dark": colour.dark, "texture": colour.texture, "ms": ms}


def _answer(request: Request) -> StepAnswer | None:
    """Return the Verdict's answer about the device; None if its times cannot be trusted."""
    result = requested_result(request)
    return answer_of(
        result, rank_of(result, request.query_params.get("recording", ""), request.query_params.get("device", "0"))
    )


def _by_label(parts: Iterable[tuple[str, str | None, float]], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return parts of a view by label; times with the same label are added up."""
    rows: dict[str, dict[str, Any]] = {}
    for owner, cause, ms in parts:
        colour = colour_of(owner, cause)
        label = names.get(known_by(owner, cause), colour.label)
        rows.setdefault(label, _part(colour, label, 0.0))["ms"] += ms
    return list(rows.values())


def _find(request: Request) -> Response:
    """Return the next slice after ``at`` (with ``back``, the previous slice) whose name contains ``q``.

    The response also contains the number of matching slices, and the position of the returned slice among them.
    """
    with opened(request) as rank:
        occurrence = tables.find(
            rank, request.query_params.get("q", ""), number(request, "at"), "back" not in request.query_params
        )
    hit = occurrence["hit"]
    return json({**occurrence, "hit": _slice_for_timeline(hit, hit["source"]) if hit else None})


def _occurrences(request: Request) -> Response:
    """Return the longest places of a finding in the order of time.

    These are the finding's events, else the gaps with its causes.
    """
    rule = request.query_params.get("rule", "")
    finding = next((f for f in requested_result(request).findings if f.rule == rule), None)
    if finding is None:
        raise UsageError("This run has no such finding.")
    with opened(request) as rank:
        origin = timeline.extent(rank.recording).start_ns
        longest = sorted(finding.spans, key=lambda place: place[0] - place[1])[:MAX_OCCURRENCES]
        places = [(start - origin, end - origin) for start, end in sorted(longest)]
        places = places or tables.occurrences(rank, finding.explains.causes, MAX_OCCURRENCES)
    return json({"places": places})


def _longest(request: Request) -> Response:
    """Return the longest piece of lost time between ``start`` and ``end``, null if there is none.

    ``nth`` selects the longest (0), the second longest (1) and so on.
    """
    with opened(request) as rank:
        piece = tables.nth_longest_loss(rank, number(request, "start"), number(request, "end"), max(number(request, "nth"), 0))
    if piece is None:
        return json({"slice": None})
    start, length, owner, cause = piece
    return json(
        {"slice": _slice_for_timeline({"start": start, "dur": length, "kind": known_by(owner, cause), "name": ""}, "gaps")}
    )


_ROUTES = (_slice, _time_range, _find, _occurrences, _longest)
details, stretch, find, occurrences, longest = (answered(route) for route in _ROUTES)
