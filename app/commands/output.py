"""Options that several commands share, and the output of a command's result."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sawtooth.app.printable import printable
from sawtooth.ingest.errors import UsageError

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", "--out", metavar="FILE", help="Write to this file. Without --format, its suffix decides the format."
    ),
]
DataOption = Annotated[Path | None, typer.Option(help="Data folder.")]
KeepOption = Annotated[bool, typer.Option(help="Store the files that this command reads as runs in the data folder.")]


class Format(StrEnum):
    """Output formats of a report."""

    json = "json"
    md = "md"
    html = "html"
    text = "text"


class TableFormat(StrEnum):
    """Output formats of a table."""

    json = "json"
    md = "md"
    text = "text"


TableFormatOption = Annotated[
    TableFormat | None, typer.Option("--format", help="md is for pull requests, json for programs, text for terminals.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
F = TypeVar("F", bound=StrEnum)
SUFFIXES = {"json": "json", "md": "md", "markdown": "md", "html": "html", "htm": "html", "txt": "text", "text": "text"}


def format_for(requested: F | None, output: Path | None, formats: type[F], *, as_json: bool = False) -> F:
    """Return the output format: the ``requested`` format, else the format of the file's suffix, else text.

    ``as_json`` requests JSON. Raises UsageError if the suffix belongs to none of ``formats``, or if ``as_json`` contradicts
    ``requested``.
    """
    if as_json:
        if requested not in (None, formats("json")):
            raise UsageError(f"--json and --format {requested} request two formats. Give only one of them.")
        return formats("json")
    if requested is not None:
        return requested
    if output is None:
        return formats("text")
    name = SUFFIXES.get(output.suffix.lstrip(".").lower(), "")
    if name not in list(formats):
        raise UsageError(
            f"The suffix of {output.name} names no known format. Give --format {', '.join(formats)}, or one of these as suffix."
        )
    return formats(name)


def say(text: str, *, err: bool = False) -> None:
    """Print one or more lines, without control characters that could change the terminal."""
    typer.echo(printable(text, "\n"), err=err)


def show_progress_line(text: str) -> None:
    """Replace the terminal line that shows the progress."""
    typer.echo(f"\r{printable(text)}\x1b[K", nl=False, err=True)


def write(content: str, output: Path | None, *, bold_line: int | None = None) -> None:
    """Write ``content`` to the file or the terminal; the terminal shows line ``bold_line`` in bold.

    Raises UsageError if the file cannot be written.
    """
    if output is None:
        typer.echo(_emphasise(content, bold_line), nl=not content.endswith("\n"))
        return
    try:
        output.write_text(content if content.endswith("\n") else f"{content}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror}). Name another file with -o.") from error


def _emphasise(content: str, line: int | None) -> str:
    if line is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return content
    lines = content.split("\n")
    lines[line] = typer.style(lines[line], bold=True, fg=typer.colors.CYAN)
    return "\n".join(lines)
