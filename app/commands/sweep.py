"""``sawtooth sweep``: the throughput of runs that differ in one setting, and the recommended value."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import msgspec
import typer

from sawtooth.analysis.batch_predictions import with_predictions
from sawtooth.analysis.compare.sweep import Point, Sweep, device_memory
from sawtooth.analysis.compare.sweep import sweep as arrange
from sawtooth.analysis.metrics.registry import with_aliases
from sawtooth.analysis.result_cache import result_of
from sawtooth.app import format as fmt
from sawtooth.app.commands.inputs import opened
from sawtooth.app.commands.output import (
    DataOption,
    JsonOption,
    KeepOption,
    OutputOption,
    TableFormat,
    TableFormatOption,
    format_for,
    write,
)
from sawtooth.app.printable import json_text, printable
from sawtooth.app.reports.sweep import markdown
from sawtooth.app.words.comparisons import sweep as words

READINGS = ("best_step_time_ms", "mfu", "gpu_busy_share", "peak_memory_bytes")  # The JSON has these readings of each point.


def sweep(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FILE…",
            help="At least two runs, by id, name or file. For --by batch_size one is enough: other sizes are predicted from it.",
        ),
    ],
    by: Annotated[
        str | None, typer.Option(metavar="SETTING", help="The setting of the sweep; needed if the runs differ in several.")
    ] = None,
    format: TableFormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    keep: KeepOption = False,
) -> None:
    """List runs by the setting in which they differ, and recommend one value.

    A setting is a tag such as batch_size=64.
    """
    chosen = format_for(format, output, TableFormat, as_json=as_json)
    with ExitStack() as stack:
        opened_runs = [stack.enter_context(opened([text], data, keep=keep)) for text in dict.fromkeys(runs)]
        libraries = {run.manifest.id: run.library for run in opened_runs}
        results = [result_of(run.manifest, run.library) for run in opened_runs]
        memory = {result.manifest.id: device_memory(result, libraries[result.manifest.id]) for result in results}
        arranged = with_predictions(arrange(results, by, memory), libraries)
    if chosen is TableFormat.json:
        write(json_text(_as_json(arranged), 1), output)
    else:
        write(markdown(arranged) if chosen is TableFormat.md else printable(_text(arranged), "\n"), output)


def _text(sweep: Sweep) -> str:
    other_settings = (
        [f"The runs also differ in {', '.join(map(fmt.clean, sweep.other_settings))}."] if sweep.other_settings else []
    )
    return "\n".join([fmt.clean(words.sentence(sweep)), *other_settings, "", *words.lines(sweep)])


def _as_json(sweep: Sweep) -> dict[str, Any]:
    chosen = sweep.points[sweep.sweet_spot].value if sweep.sweet_spot is not None else None
    return {
        "setting": sweep.setting,
        "unit": sweep.unit,
        "sweet_spot": chosen,
        "why": sweep.why,
        "others": sweep.other_settings,
        "points": [_point(point) for point in sweep.points],
        "predicted": [msgspec.to_builtins(prediction) for prediction in sweep.predicted],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "value": point.value,
        "run": {"id": point.run.manifest.id, "name": point.run.manifest.name},
        "tried_beside_the_run": not point.is_run,
        "out_of_memory": point.too_large,
        "throughput_per_s": point.throughput.value,
        "accumulated_per_s": point.accumulated,
        **with_aliases({key: point.reading(key).value for key in READINGS}),
    }
