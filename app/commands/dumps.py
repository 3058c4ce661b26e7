"""``sawtooth collectives`` and ``sawtooth memory``: answers from PyTorch's dumps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.dumps.held_memory import held_memory
from sawtooth.analysis.dumps.hung_collective import flight_report
from sawtooth.app.commands.output import JsonOption, OutputOption, TableFormat, TableFormatOption, format_for, write
from sawtooth.app.printable import json_text
from sawtooth.app.reports import flight_recorder, memory_snapshot
from sawtooth.ingest.dumps.flight_recorder import is_flight_recorder, read_dumps
from sawtooth.ingest.dumps.memory_snapshot import is_snapshot, read_snapshot
from sawtooth.ingest.dumps.opened import read_head
from sawtooth.ingest.errors import UsageError

MAX_FILES = 100_000  # No job has more ranks, and each rank writes one file.


def collectives(
    dumps: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…|DIR",
            exists=True,
            help="Dumps of NCCL's flight recorder, one per rank (pickle or JSON), whose names end with the rank. A folder means all dumps in it.",
        ),
    ],
    format: TableFormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print which collective hangs and which ranks are missing, from dumps of NCCL's flight recorder."""
    files = [file for path in dumps for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    if any(path.is_dir() for path in dumps):
        files = [file for file in files if file in dumps or is_flight_recorder(read_head(file))]
    if not files or len(files) > MAX_FILES:
        raise UsageError(f"Found {len(files):,} dumps of NCCL's flight recorder. Give 1 to {MAX_FILES:,}.")
    _answer_flight(files, format_for(format, output, TableFormat, as_json=as_json), output)


def memory(
    snapshot: Annotated[
        Path,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A pickle of torch.cuda.memory._dump_snapshot()."),
    ],
    format: TableFormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what uses the GPU's memory at its peak, its fragmentation, and the memory missing at an OOM."""
    _answer_memory([snapshot], format_for(format, output, TableFormat, as_json=as_json), output)


def _answer_flight(files: Sequence[Path], chosen: TableFormat, output: Path | None) -> None:
    report = flight_report(read_dumps(files))
    if chosen is TableFormat.json:
        write(json_text(flight_recorder.plain_data(report), 1), output)
    elif chosen is TableFormat.md:
        write(flight_recorder.markdown(report), output)
    else:
        write(flight_recorder.text(report), output, bold_line=0)


def _answer_memory(files: Sequence[Path], chosen: TableFormat, output: Path | None) -> None:
    (file,) = files
    memories = held_memory(read_snapshot(file))
    if chosen is TableFormat.json:
        write(json_text({"devices": memory_snapshot.plain_data(memories)}, 1), output)
    elif chosen is TableFormat.md:
        write(memory_snapshot.markdown(memories), output)
    else:
        write(memory_snapshot.text(memories), output, bold_line=0)


def answer_of(inputs: Sequence[str]) -> Callable[[Sequence[Path], TableFormat, Path | None], None] | None:
    """Return the function that prints the answer about ``inputs``; None if they are not dumps."""
    paths = [Path(text) for text in inputs]
    if not paths or not all(path.is_file() for path in paths):
        return None
    heads = [read_head(path) for path in paths]
    if all(map(is_flight_recorder, heads)):
        return _answer_flight
    return _answer_memory if len(heads) == 1 and is_snapshot(heads[0]) else None
