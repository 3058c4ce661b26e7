"""``sawtooth sweep``: runs that differ in one setting, by throughput, and the setting to choose."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sawtooth.analysis.compare.sweep import Sweep, device_memory
from sawtooth.analysis.compare.sweep import sweep as arrange
from sawtooth.analysis.kept import result_of
from sawtooth.analysis.metrics.registry import with_aliases
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.commands.inputs import data_folder
from sawtooth.app.words import comparison as words

READINGS = ("best_step_time_ms", "mfu", "gpu_busy_share", "peak_memory_bytes")  # of each point, in the JSON


class Format(StrEnum):
    """Output formats of the sweep."""

    text = "text"
    json = "json"


def sweep(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Ids or names of at least two runs, as listed by sawtooth runs.")
    ],
    by: Annotated[
        str | None, typer.Option(metavar="SETTING", help="The setting to sweep over, where the runs differ in several.")
    ] = None,
    format: Annotated[Format, typer.Option(help="text for a terminal, json for programs.")] = Format.text,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Arrange runs by the setting in which they differ (tags such as batch_size=64) and name the one to choose."""
    folder = data_folder(data)
    library = Library(folder)
    try:
        results = [result_of(folder.resolve_run(text), library) for text in dict.fromkeys(runs)]
        arranged = arrange(results, by, {result.manifest.id: device_memory(result, library) for result in results})
    finally:
        library.close()
    typer.echo(json.dumps(_plain(arranged), indent=1, ensure_ascii=False) if format is Format.json else _text(arranged))


def _text(sweep: Sweep) -> str:
    columns = words.sweep_columns(sweep)
    rows = [list(columns.values())]
    for row in words.sweep_rows(sweep).itertuples(index=False):
        rows.append([cell if isinstance(cell, str) else fmt.number(cell) if cell == cell else fmt.MISSING for cell in row])
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    others = [f"The runs also differ in {', '.join(map(fmt.clean, sweep.others))}."] if sweep.others else []
    return "\n".join([fmt.clean(words.spaced(sweep.why)), *others, "", *lines])


def _plain(sweep: Sweep) -> dict[str, Any]:
    points = [
        {
            "value": point.value,
            "run": {"id": point.run.manifest.id, "name": point.run.manifest.name},
            "throughput_per_s": point.throughput.value,
            **with_aliases({key: point.reading(key).value for key in READINGS}),
        }
        for point in sweep.points
    ]
    chosen = points[sweep.sweet_spot]["value"] if sweep.sweet_spot is not None else None
    return {
        "setting": sweep.setting,
        "unit": sweep.unit,
        "sweet_spot": chosen,
        "why": sweep.why,
        "others": sweep.others,
        "points": points,
    }
