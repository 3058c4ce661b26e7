"""Data above the timeline's lanes: a map of ranks and steps, and the run's and the profiled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from sawtooth.analysis.metrics.step_time_evidence import source_in_words
from sawtooth.analysis.ranks.collectives import step_labels
from sawtooth.analysis.ranks.heatmap import MAX_CELLS, rank_steps
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.page import current_result

MIN_VISIBLE_SHARE = 0.02  # Share of the profiled step. A smaller difference between both steps cannot be seen in the bars.
MIN_RANKS = 2  # Ranks. With fewer, there is nothing to compare.


def heat(result: RunResult, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row with the counted steps of each rank in the picture, sorted by rank number.

    A step is [start, end, own_ms, wait_ms, late_ms, name]. start and end are in ns on the picture's clock. own_ms is the time
    without waits for other ranks. late_ms is own_ms minus the median own_ms of all ranks, at least 0. If there are too many
    steps to draw, each group of neighbouring steps is represented by its worst step. The list is empty if the waits of the
    ranks are not known.
    """
    communication = result.communication
    if communication is None or communication.heat is not None or len(shown) < MIN_RANKS:
        return []
    by_place = {(rank.recording_id, rank.device): i for i, rank in enumerate(result.ranks)}
    table = rank_steps(result.ranks, communication)
    table["late_ms"] = (table["own_ms"] - table.groupby("step")["own_ms"].transform("median")).clip(lower=0)
    numbers = [rank.rank for rank in result.ranks]
    numbered = None not in numbers and len(set(numbers)) == len(numbers)
    max_columns = MAX_CELLS // len(shown)
    rows: dict[int, dict[str, Any]] = {}
    for place, track in enumerate(shown):
        position = by_place[track["recording"], track["device"]]
        rank, number = result.ranks[position], numbers[position] if numbered else None
        number = position if number is None else number
        steps = _steps(rank, table[table["rank"] == number], track)
        rows[number] = {"track": place, "label": current_result.rank_label(rank), "steps": _worst(steps, max_columns)}
    return [rows[number] for number in sorted(rows)]


def _steps(rank: RankResult, own: Any, track: dict[str, Any]) -> list[list[Any]]:
    names = step_labels(rank.steps).loc[rank.counted.index]
    shift = track["offset"] - track["origin"]
    times = rank.counted[["start_ns", "end_ns"]].to_numpy(np.int64) + shift
    values = own.drop_duplicates("step").set_index("step")[["own_ms", "wait_ms", "late_ms"]].reindex(names).round(4).to_numpy()
    return [
        [*map(int, span), *map(float, of), fmt.clean(str(name), 40)]
        for span, of, name in zip(times, values, names, strict=True)
        if not np.isnan(of).any()
    ]


def _worst(steps: list[list[Any]], max_columns: int) -> list[list[Any]]:
    every = -(-len(steps) // max(max_columns, 1))
    if every < 2:
        return steps
    return [max(steps[i : i + every], key=lambda step: step[3] + step[4]) for i in range(0, len(steps), every)]


def scale(rank: RankResult | None) -> dict[str, Any] | None:
    """Return the run's step and the profiled step in ms, and a sentence.

    Return None if only one of them is known.
    """
    best = rank.best if rank is not None else None
    if best is None or best.ms is None or best.mean_ms is None or best.source == "profile":
        return None
    source = source_in_words(best.source, best.evidence)
    more, (low, high) = best.mean_ms - best.ms, (best.reading.low, best.reading.high)
    difference = fmt.part_ms(max(best.ms, best.mean_ms), abs(more))
    spread = f" ({fmt.span_ms(low, high)})" if low and high else ""
    if abs(more) < MIN_VISIBLE_SHARE * best.mean_ms:
        sentence = f"The run's step by {source}{spread} is as long as the profiled steps that the lanes show."
    elif low and high and low <= best.mean_ms <= high:
        sentence = (
            f"The profiled steps that the lanes show take {difference} {'longer' if more > 0 else 'less'} than the run's. "
            f"That is within the error of the run's step{spread}, by {source}."
        )
    elif more < 0:
        sentence = f"The run's steps take {difference} longer than the profiled steps that the lanes show."
    elif best.represented:
        sentence = f"The profiler adds ≈\u00a0{difference} to each step here. The lanes show the profile."
    else:
        sentence = f"The profiled steps that the lanes show take {difference} longer than the run's steps."
    return {
        "run": best.ms,
        "profiled": best.mean_ms,
        "words": [f"≈\u00a0{fmt.duration_ms(best.ms)}", fmt.duration_ms(best.mean_ms)],
        "sentence": sentence,
    }
