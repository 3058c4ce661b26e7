"""``sawtooth compare``: the comparison of two runs as text, JSON, Markdown or HTML; gates for CI."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.compare.changed.products import products_in
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison import compare as compare_sides
from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.gate import GateOutcome, judge, parse_gate
from sawtooth.analysis.compare.prediction_record import remember
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.commands.inputs import opened_all
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import DataOption, Format, JsonOption, KeepOption, OutputOption, format_for, say, write
from sawtooth.app.format import clean
from sawtooth.app.page.default_pair import likely_pair
from sawtooth.app.printable import json_text
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.runs.listing import listed
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import Manifest

_SIDE = "Each is a run id or name, a file or a folder. Several recordings of one side are in one folder or separated by commas."


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B",
            help=f"The runs before and after. {_SIDE} Default: the newest two runs of the same work in the data folder.",
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="B…", help="Runs of the second side, if a side has several: A1 A2 A3 --to B1 B2 B3."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(help="json has a fixed schema, md is for pull requests, html is one file that works offline."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help='A gate such as "best_step_time_ms:+5%"; may be repeated. The exit code is 1 if a gate fails, and 2 if one cannot be judged.'
        ),
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    keep: KeepOption = False,
) -> None:
    """Compare B with A: the verdict, the change of each part of the step, kernels, operators and findings."""
    chosen = format_for(format, output, Format, as_json=as_json)
    gates = [parse_gate(text) for text in fail_on or []]
    side_texts = _sides(runs or [], to or []) or [[run] for run in _newest_with_same_work(data)]
    with ExitStack() as stack:
        sides = [_side(stack, texts, data, keep) for texts in side_texts]
        comparison = compare_sides(*sides)
    are_stored = not any(Path(text).exists() for texts in side_texts for text in texts)
    if comparison.prediction is not None and are_stored:
        remember(data_folder(data), comparison.a.first.manifest.id, comparison.b.first.manifest.id, comparison.prediction)
    code, outcomes = judge(comparison, gates)
    write(_format(comparison, outcomes, chosen), output, bold_line=0 if chosen is Format.text else None)
    if chosen in (Format.json, Format.html) or output is not None:
        for outcome in outcomes:
            say(outcome.sentence, err=True)
    raise typer.Exit(code)


def _sides(runs: list[str], to: list[str]) -> list[list[str]]:
    """Return the runs of both sides as the command line names them; [] if it names none.

    Raises UsageError if it is not clear which runs belong to which side.
    """
    if to and not runs:
        raise UsageError("Name the runs of the first side before --to, such as sawtooth compare A1 A2 A3 --to B1 B2 B3.")
    if to or not runs:
        return [runs, to] if to else []
    if len(runs) == 1:
        raise UsageError(f"A comparison needs two sides, and only {runs[0]!r} is given. Write sawtooth compare BEFORE AFTER.")
    if len(runs) > 2:
        raise UsageError(
            f"{len(runs)} runs are given. Write --to before the runs of the second side, such as A1 A2 A3 --to B1 B2 B3."
        )
    return [[run] for run in runs]


def _newest_with_same_work(data: Path | None) -> tuple[str, str]:
    """Return the ids of the newest two runs of the same work; raises UsageError if there are none."""
    folder = data_folder(data)
    with Library(folder) as library:

        def products(manifest: Manifest) -> frozenset[str]:
            return products_in(library, manifest.traces[0].id) if manifest.traces else frozenset()

        pair = likely_pair(listed(folder.manifests()), None, products)
    if pair is None:
        raise UsageError(
            "No two runs in the data folder are known to do the same work. Name both: sawtooth compare BEFORE AFTER."
        )
    say(f"Comparing {clean(pair[1].name, 60)} with {clean(pair[0].name, 60)}, the newest two runs of the same work.", err=True)
    return pair[0].id, pair[1].id


def _side(stack: ExitStack, texts: Sequence[str], data: Path | None, keep: bool) -> Side:
    """Open and analyse the runs of one side, one after the other, to limit memory."""
    loaded = []
    for part in (part for text in texts for part in _parts(text)):
        runs = stack.enter_context(opened_all([part], data, keep=keep))
        loaded.append(side_of([result_of(run.manifest, run.library) for run in runs], runs[0].library))
    return Side.of(loaded)


def _parts(text: str) -> list[str]:
    if Path(text).exists():
        return [text]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError("A side of a comparison needs a run id, a file or a folder.")
    return parts


def _format(comparison: Comparison, outcomes: Sequence[GateOutcome], format: Format) -> str:
    if format is Format.json:
        gates = [{"gate": o.gate.text, "exit_code": o.code, "sentence": o.sentence} for o in outcomes]
        return json_text({**compare_json(comparison), "gates": gates}, 1) + "\n"
    if format is Format.html:
        from sawtooth.app.reports.html import comparison_html  # Imported only here, because its templates take time to load.

        return comparison_html(comparison, outcomes)
    return (compare_text.markdown if format is Format.md else compare_text.text)(comparison, outcomes)
