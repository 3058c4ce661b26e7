"""``sawtooth compare``: what changed between two runs, as text, JSON, Markdown or one HTML file; and gates for CI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analysis.compare import Comparison, Side, side_of
from analysis.compare import compare as compare_sides
from analysis.compare_report import compare_json
from analysis.gate import Outcome, judge, parse_gate
from analysis.result_store import result_of
from app import compare_text, html_report
from app.commands.inputs import opened
from ingest.errors import UsageError

_SIDE = "A run id or name, a file or a folder; several recordings of one side are separated by commas."


class Format(StrEnum):
    """Output formats of the comparison."""

    json = "json"
    md = "md"
    html = "html"
    text = "text"


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=f"Before. {_SIDE}")],
    b: Annotated[str, typer.Argument(metavar="B", help="After, given like A.")],
    format: Annotated[
        Format,
        typer.Option(help="json follows a fixed contract; md suits a pull request; html is one file that needs no network."),
    ] = Format.text,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help='A gate such as "best_step_time_ms:+5%"; may be given several times. Exits 1 when one fails, 2 when one cannot be judged.'
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep what is ingested on the fly in the data folder.")] = False,
) -> None:
    """Compare B with A: verdict, what the step's change is made of, kernels, operators and findings."""
    gates = [parse_gate(text) for text in fail_on or []]
    with ExitStack() as stack:
        sides = [_side(stack, text, data, keep) for text in (a, b)]
        comparison = compare_sides(*sides)
    code, outcomes = judge(comparison, gates)
    _write(_formatted(comparison, outcomes, format), output)
    if format in (Format.json, Format.html) or output is not None:
        for outcome in outcomes:
            typer.echo(outcome.sentence, err=True)
    raise typer.Exit(code)


def _side(stack: ExitStack, text: str, data: Path | None, keep: bool) -> Side:
    """Open, analyse and load one side; its runs come from one library each, so several are loaded one after the other."""
    loaded = []
    for part in _parts(text):
        run = stack.enter_context(opened([part], data, keep=keep))
        loaded.append(side_of([result_of(run.manifest, run.library)], run.library))
    return Side.of(loaded)


def _parts(text: str) -> list[str]:
    if Path(text).exists():
        return [text]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError("A side of a comparison needs a run id, a file or a folder.")
    return parts


def _formatted(comparison: Comparison, outcomes: Sequence[Outcome], format: Format) -> str:
    if format is Format.json:
        gates = [{"gate": o.gate.text, "exit_code": o.code, "sentence": o.sentence} for o in outcomes]
        return json.dumps({**compare_json(comparison), "gates": gates}, indent=1, ensure_ascii=False) + "\n"
    if format is Format.html:
        return html_report.comparison_html(comparison, outcomes)
    return (compare_text.markdown if format is Format.md else compare_text.text)(comparison, outcomes)


def _write(content: str, output: Path | None) -> None:
    if output is None:
        typer.echo(content, nl=False)
        return
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
