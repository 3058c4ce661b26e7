"""Bringing files in: ingest each, derive what pages need, and join them into runs. Used by the command line and the ingest child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.derive import ensure_derived
from ingest import clocks
from ingest.bundle import import_bundle, is_bundle
from ingest.errors import SawtoothError
from ingest.recording import Progress, ingest_file
from ingest.runs import register_runs
from ingest.schema import DataFolder, Manifest, RecordingRef

SKIPPED_SUFFIXES = (
    ".md",
    ".py",
    ".png",
    ".html",
    ".log",
    ".duckdb",
)  # never a trace or telemetry in a folder given whole
NOTHING_SAID = clocks.Said()


@dataclass(frozen=True)
class Brought:
    """The runs that came of the files, a sentence for each file that could not be read, and one for each that cannot be placed in time."""

    runs: list[Manifest]
    refused: list[str]
    unplaced: list[str]


def bring_in(
    folder: DataFolder,
    files: list[tuple[Path, str]],
    *,
    separate: bool = False,
    keep_source: bool = True,
    name: str | None = None,
    tolerant: bool = False,
    progress: Callable[[str, Progress], None] | None = None,
    said: clocks.Said = NOTHING_SAID,
) -> Brought:
    """Ingest ``files`` (path, name for people) and register their runs; ``said`` is what the user told of the telemetry's clock.

    The first file that cannot be read raises its SawtoothError, unless ``tolerant``: then it is named in ``refused`` and the others
    go on. When no file can be read the first error is raised in either case.
    """
    refs: list[RecordingRef] = []
    unpacked: list[Manifest] = []
    refused: list[str] = []
    unplaced: list[str] = []
    first_error: SawtoothError | None = None
    for path, shown in files:
        report = (lambda p, shown=shown: progress(shown, p)) if progress else None
        try:
            if is_bundle(path):
                unpacked += _unpack(path, folder, keep_source, progress)
                continue
            ref = ingest_file(path, folder, source_name=shown, keep_source=keep_source, progress=report)
            ensure_derived(folder, ref.id)
            if ref.kind == "telemetry":
                clock, first_ns = clocks.clock_of(folder, ref)
                ref = clocks.apply(ref, clock, first_ns, said)
                if (lacks := clocks.needs(ref, clock)) is not None:
                    unplaced.append(f"{shown}: {lacks}")
        except SawtoothError as error:
            if not tolerant:
                raise
            first_error = first_error or error
            refused.append(f"{shown}: {error}")
        else:
            refs.append(ref)
    if not refs and not unpacked and first_error is not None:
        raise first_error
    made = register_runs(folder, refs, name=name, separate=separate) if refs else []
    return Brought([*unpacked, *made], refused, unplaced)


def _unpack(
    path: Path, folder: DataFolder, keep_source: bool, progress: Callable[[str, Progress], None] | None
) -> list[Manifest]:
    """Bring in the runs of a ``.sawtooth`` file, which keep their names and facts."""
    made = import_bundle(path, folder, keep_source=keep_source, progress=progress)
    for run in made:
        for ref in run.recordings:
            ensure_derived(folder, ref.id)
    return made


def files_of(given: Path) -> tuple[list[tuple[Path, str]], bool]:
    """Return the files that ``given`` (a file or a folder) stands for, and whether it is a folder."""
    if given.is_dir():
        found = sorted(
            p for p in given.iterdir() if p.is_file() and not p.name.startswith(".") and p.suffix not in SKIPPED_SUFFIXES
        )
        return [(p, p.name) for p in found], True
    return [(given, given.name)], False
