"""``sawtooth sweep``: runs that differ in one setting, by throughput, and the setting to choose."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.recordings import Library
from analysis.result_store import result_of
from analysis.sweep import Sweep, device_memory
from analysis.sweep import sweep as arrange
from app import compare_words as words
from app import format as people
from app.commands.inputs import data_folder


class Format(StrEnum):
    """Output formats of the sweep."""

    text = "text"
    json = "json"


def sweep(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Ids or names of two runs and more; `sawtooth runs` lists them.")
    ],
    by: Annotated[
        str | None, typer.Option(metavar="SETTING", help="The setting to arrange by, where the runs differ in several.")
    ] = None,
    format: Annotated[Format, typer.Option(help="text for a terminal, json for programs.")] = Format.text,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Arrange runs by the setting in which they differ (tags such as batch_size=64) and name the one to choose."""
    folder = data_folder(data)
    library = Library(folder)
    try:
        results = [result_of(folder.resolve_run(text), library) for text in dict.fromkeys(runs)]
        found = arrange(results, by, {result.manifest.id: device_memory(result, library) for result in results})
    finally:
        library.close()
    typer.echo(json.dumps(_plain(found), indent=1, ensure_ascii=False) if format is Format.json else _text(found))


def _text(found: Sweep) -> str:
    columns = words.sweep_columns(found)
    rows = [list(columns.values())]
    for row in words.sweep_rows(found).itertuples(index=False):
        rows.append(
            [cell if isinstance(cell, str) else people.number(cell) if cell == cell else people.MISSING for cell in row]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    others = [f"The runs also differ in {', '.join(map(people.clean, found.others))}."] if found.others else []
    return "\n".join([people.clean(words.spaced(found.why)), *others, "", *lines])


def _plain(found: Sweep) -> dict[str, Any]:
    points = [
        {
            "value": point.value,
            "run": {"id": point.run.manifest.id, "name": point.run.manifest.name},
            "throughput_per_s": point.throughput.value,
            **{key: point.reading(key).value for key in ("step_time_best_ms", "mfu", "gpu_busy_share", "peak_memory_bytes")},
        }
        for point in found.points
    ]
    chosen = points[found.sweet_spot]["value"] if found.sweet_spot is not None else None
    return {
        "setting": found.setting,
        "unit": found.unit,
        "sweet_spot": chosen,
        "why": found.why,
        "others": found.others,
        "points": points,
    }
