"""``sawtooth publish``: send a run's numbers and report to an experiment tracker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.staircase import staircase_of
from sawtooth.app import format as fmt
from sawtooth.app.commands.inputs import opened
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.printable import json_text
from sawtooth.app.publish.trackers import PublishedRun, Target
from sawtooth.app.publish.trackers import publish as send
from sawtooth.app.publish.values import values_of


class Tracker(StrEnum):
    """The trackers that a run can be sent to."""

    wandb = "wandb"
    mlflow = "mlflow"
    trackio = "trackio"
    tensorboard = "tensorboard"


def publish(
    run: Annotated[list[str], typer.Argument(metavar="RUN|FILE…", help="A run id or name, or files of one run.")],
    to: Annotated[Tracker, typer.Option(help="The tracker. Its own library and environment variables are used.")],
    project: Annotated[str, typer.Option(help="Name of the project or experiment in the tracker.")] = "sawtooth",
    tracker_run: Annotated[
        str, typer.Option("--run", metavar="ID", help="Add the numbers to this run of the tracker. Default: a new run.")
    ] = "",
    url: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to store as a link, such as this run's page.")] = "",
    folder: Annotated[Path, typer.Option(help="Folder for TensorBoard's files.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was sent as JSON.")] = False,
    data: DataOption = None,
) -> None:
    """Send a run's numbers, its HTML report and a link to W&B, MLflow, Trackio or TensorBoard."""
    from sawtooth.app.reports.html import run_html  # Imported only here, because its templates take a tenth of the start time.

    with opened(run, data) as chosen, TemporaryDirectory(prefix="sawtooth-publish-") as scratch:
        result = result_of(chosen.manifest, chosen.library)
        html, report = Path(scratch) / "sawtooth_report.html", Path(scratch) / "sawtooth_report.json"
        computed = staircase_of(chosen.library, result, every_choice=False)
        html.write_text(run_html(result, computed), encoding="utf-8")
        report.write_text(json_text(report_json(result), 1), encoding="utf-8")
        values = values_of(result)
        published = PublishedRun(fmt.clean(chosen.manifest.name, fmt.NAME_LENGTH), values, html, report, url)
        place = send(to.value, published, Target(project, tracker_run, folder))
    if as_json:
        say(json_text({"tracker": to.value, "where": place, "values": values}))
    else:
        say(f"Sent {len(values)} numbers and the report to {to.value}: {place}.")
