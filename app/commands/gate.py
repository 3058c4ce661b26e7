"""``sawtooth gate``: compare a build's recording with a baseline, for pull requests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison import compare as compare_sides
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.gate import COULD_NOT_JUDGE, PASSED, GateOutcome, judge, parse_gate
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.commands.inputs import opened
from sawtooth.app.commands.output import DataOption, OutputOption, say, write
from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.app.printable import json_text
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.reports import text as report_text
from sawtooth.app.reports.github import Job, add_output, add_to_summary
from sawtooth.app.runs.baselines import ARTIFACT, fetch_baseline, store_baseline
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.runs.bundle import export_runs
from sawtooth.ingest.runs.bundle_file import is_bundle
from sawtooth.ingest.schema import DataFolder

DEFAULT_GATE = "best_step_time_ms:+5%"
MARKER = "<!-- sawtooth-gate:{name} -->"  # This text identifies the comment of a baseline. Each baseline has one comment.
FALSE_ALARMS = (
    "If nothing changed, a step-time gate nominally fails in 2.5 % of builds, which is one side of a 95 % interval. It fails more often if the "
    "CPU limits the step, because the CPU's speed varies by up to 20 % from run to run. Then use a limit of 20 % or more."
)


def gate(
    recording: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="The build's recording: a .sawtooth file, traces, telemetry or a folder."),
    ],
    baseline: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="Where the baseline is: a .sawtooth file, a folder, s3://…, gs://…, az://… or artifact:NAME."
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Name of the baseline in a folder or store, such as the name of the benchmark.")
    ] = "baseline",
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"A gate, as in sawtooth compare; may be repeated. Default: {DEFAULT_GATE}")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Store this recording as the new baseline, even if a gate fails.")
    ] = False,
    comment: Annotated[
        bool, typer.Option("--comment", help="Write the result as a comment on the pull request; a later build updates it.")
    ] = False,
    output: OutputOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON instead of Markdown.")] = False,
    data: DataOption = None,
) -> None:
    """Compare a build with the baseline, and write the summary of the CI job.

    Exit codes: 0 passed, 1 a gate failed, 2 there is no baseline or a gate cannot be judged.
    """
    gates = [parse_gate(text) for text in fail_on or [DEFAULT_GATE]]
    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} cannot be the name of a baseline. A name has no / and does not begin with a dot.")
    with TemporaryDirectory(prefix="sawtooth-gate-") as scratch, ExitStack() as stack:
        new = stack.enter_context(opened(recording, data))
        result = result_of(new.manifest, new.library)
        verdict: str = "no_baseline"
        before = fetch_baseline(baseline, name, Path(scratch))
        if before is not None:
            old = stack.enter_context(opened([str(before)], data))
            sides = [side_of([result_of(old.manifest, old.library)], old.library), side_of([result], new.library)]
            comparison = compare_sides(*sides)
            code, outcomes = judge(comparison, gates)
            text, verdict, line = _comparison_comment(comparison, outcomes, name), comparison.answer, words.headline(comparison)
            plain = {**compare_json(comparison), "gates": [_as_json(outcome) for outcome in outcomes], "exit_code": code}
        else:
            code = PASSED if update else COULD_NOT_JUDGE
            text, line = _first(result, name, baseline, update=update)
            plain = {"verdict": verdict, "gates": [], "exit_code": code}
        if update:
            _store(recording, baseline, name, Path(scratch))
    write(json_text(plain, 1) if as_json else text, output)
    add_to_summary(text)
    add_output(verdict=verdict, headline=fmt.clean(line), exit_code=str(code))
    if comment:
        _comment(text, name)
    raise typer.Exit(code)


def _comparison_comment(comparison: Comparison, outcomes: list[GateOutcome], name: str) -> str:
    visible = comparison.verdict.smallest_visible_share
    power = f" A change of {fmt.share(visible)} or more is detected in four of five builds." if visible is not None else ""
    return f"{MARKER.format(name=name)}\n{compare_text.markdown(comparison, outcomes)}\n<sub>{FALSE_ALARMS}{power}</sub>\n"


def _first(result: RunResult, name: str, baseline: str, *, update: bool) -> tuple[str, str]:
    """Return the comment and its headline for a build without a baseline."""
    place = baseline if baseline.startswith(ARTIFACT) else "the baseline's place"
    line = (
        f"There was no baseline {name}. This recording is now the baseline."
        if update
        else f"There is no baseline {name} in {place}, so nothing was compared. Run once with --update on the main branch."
    )
    return f"{MARKER.format(name=name)}\n> {line}\n\n{report_text.markdown(result)}", line


def _as_json(outcome: GateOutcome) -> dict[str, object]:
    return {"gate": outcome.gate.text, "exit_code": outcome.code, "sentence": outcome.sentence}


def _bundle(recording: list[str], scratch: Path) -> Path:
    """Return the recording as one bundle.

    If the recording is not a bundle, its files are ingested again, because the cache of ingested files has no sources.
    """
    paths = [Path(text) for text in recording]
    if len(paths) == 1 and paths[0].is_file() and is_bundle(paths[0]):
        return paths[0]
    folder = DataFolder(scratch / "data").create()
    files = [file for path in paths for file in files_of(path)[0]]
    ingested = ingest_into_runs(folder, files, tolerant=True)
    export_runs(folder, [run.id for run in ingested.runs], scratch / "new.sawtooth")
    return scratch / "new.sawtooth"


def _store(recording: list[str], baseline: str, name: str, scratch: Path) -> None:
    """Store the recording as the baseline; an artifact is written to a file, which CI uploads."""
    bundle = _bundle(recording, scratch)
    if baseline.startswith(ARTIFACT):
        artifact_file = Path.cwd() / f"{name}.sawtooth"
        artifact_file.write_bytes(bundle.read_bytes())
        add_output(baseline_file=str(artifact_file), baseline_artifact=baseline.removeprefix(ARTIFACT))
        say(f"Baseline for the artifact: {artifact_file}", err=True)
        return
    say(f"Baseline stored: {store_baseline(bundle, baseline, name)}", err=True)


def _comment(text: str, name: str) -> None:
    job = Job.of_environment()
    if job is None or job.pull_request is None:
        say("No comment was written, because there is no pull request or no GITHUB_TOKEN.", err=True)
    elif not job.comment(MARKER.format(name=name), text):
        say("The token may not write comments, as is usual in a fork. The job's summary has the result.", err=True)
