"""The options that several commands have, and how a command's result is written."""

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
        "-o", "--output", "--out", metavar="FILE", help="Write to this file. Its suffix decides the format where none is given."
    ),
]
DataOption = Annotated[Path | None, typer.Option(help="Data folder.")]
KeepOption = Annotated[bool, typer.Option(help="Keep files that are ingested for this command in the data folder.")]


class Format(StrEnum):
    """Output formats of what a page can be made of."""

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
F = TypeVar("F", bound=StrEnum)
SUFFIXES = {"json": "json", "md": "md", "markdown": "md", "html": "html", "htm": "html", "txt": "text", "text": "text"}


def format_for(asked: F | None, output: Path | None, known: type[F]) -> F:
    """Return the format to write: the one ``asked`` for, else the file's, else text. Raises UsageError for a suffix that says none."""
    if asked is not None:
        return asked
    if output is None:
        return known("text")
    name = SUFFIXES.get(output.suffix.lstrip(".").lower(), "")
    if name not in list(known):
        raise UsageError(f"{output.name} does not say its format. Give --format {', '.join(known)}, or a suffix of these.")
    return known(name)


def say(text: str, *, err: bool = False) -> None:
    """Print a line or some; a name in them moves no cursor and sets no window's title."""
    typer.echo(printable(text, "\n"), err=err)


def say_over(text: str) -> None:
    """Write over the line of the terminal on which progress is shown."""
    typer.echo(f"\r{printable(text)}\x1b[K", nl=False, err=True)


def write(content: str, output: Path | None, *, bold_line: int | None = None) -> None:
    """Write ``content`` to the file, or to the terminal, where line number ``bold_line`` stands out. Raises UsageError for an unwritable file."""
    if output is None:
        typer.echo(_emphasised(content, bold_line), nl=not content.endswith("\n"))
        return
    try:
        output.write_text(content if content.endswith("\n") else f"{content}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error


def _emphasised(content: str, line: int | None) -> str:
    if line is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return content
    lines = content.split("\n")
    lines[line] = typer.style(lines[line], bold=True, fg=typer.colors.CYAN)
    return "\n".join(lines)
