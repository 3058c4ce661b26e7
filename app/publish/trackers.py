"""Send a run's numbers, its HTML report and a link to an experiment tracker by its own library.

The library itself reads addresses and keys, for example from WANDB_API_KEY, MLFLOW_TRACKING_URI and TRACKIO_SERVER_URL.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sawtooth.ingest.capture.command.scalars import ScalarWriter
from sawtooth.ingest.errors import SawtoothError, UsageError

FOLDER = "sawtooth"  # The folder of a run's files at the tracker.


@dataclass(frozen=True)
class PublishedRun:
    """The data to send: the run's name, its numbers, its HTML and JSON reports, and the page's address."""

    name: str
    values: Mapping[str, float]
    html: Path
    report: Path
    url: str


@dataclass(frozen=True)
class Target:
    """The destination: the project (or experiment) and the id of the tracker's run.

    The id "" makes a new run.
    """

    project: str
    run: str = ""
    folder: Path = Path("runs")


def publish(tracker: str, content: PublishedRun, target: Target) -> str:
    """Send a run to a tracker, and return the address or name of the tracker's run.

    Raises UsageError if the library is missing, SawtoothError if it fails.
    """
    send = TRACKERS[tracker]
    try:
        return send(content, target)
    except (SawtoothError, OSError):
        raise
    except Exception as error:  # Each library has its own errors, and no common base.
        first = str(error).strip().partition("\n")[0][:300]
        raise SawtoothError(
            f"{tracker} did not accept the report ({type(error).__name__}: {first}). Check the tracker's address and login."
        ) from error


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"Publishing to {name} needs its library: pip install {name}.") from None


def _wandb(content: PublishedRun, target: Target) -> str:
    wandb: Any = _library("wandb")
    joined = {"id": target.run, "resume": "must"} if target.run else {"name": content.name}
    run = wandb.init(project=target.project, job_type="sawtooth", **joined)
    try:
        # The step numbers of a W&B run must increase, so these values go into the summary and not to a step.
        run.summary.update({**content.values, **({"sawtooth/url": content.url} if content.url else {})})
        run.log({"sawtooth/report": wandb.Html(content.html.read_text(encoding="utf-8"), inject=False)})
        artifact = wandb.Artifact(f"sawtooth-{run.id}", type="report")
        artifact.add_file(str(content.html))
        artifact.add_file(str(content.report))
        run.log_artifact(artifact)
        return str(getattr(run, "url", None) or f"the offline run {run.id}: send it with wandb sync")
    finally:
        run.finish()


def _mlflow(content: PublishedRun, target: Target) -> str:
    mlflow: Any = _library("mlflow")
    mlflow.set_experiment(target.project)
    with mlflow.start_run(**({"run_id": target.run} if target.run else {"run_name": content.name})) as run:
        mlflow.log_metrics(dict(content.values))
        mlflow.log_artifact(str(content.html), artifact_path=FOLDER)
        mlflow.log_artifact(str(content.report), artifact_path=FOLDER)
        if content.url:
            mlflow.set_tag("sawtooth.url", content.url)
        return f"run {run.info.run_id} of experiment {target.project}"


def _trackio(content: PublishedRun, target: Target) -> str:
    trackio: Any = _library("trackio")
    trackio.init(project=target.project, name=target.run or content.name, **({"resume": "must"} if target.run else {}))
    try:
        trackio.log({**content.values, "sawtooth/report": trackio.Html(content.html.read_text(encoding="utf-8"))})
        trackio.log_artifact(str(content.report), name="sawtooth", type="report")
        if content.url:
            trackio.log({"sawtooth/url": content.url})
    finally:
        trackio.finish()
    return f"run {target.run or content.name} of project {target.project}"


def _tensorboard(content: PublishedRun, target: Target) -> str:
    """Write the numbers as scalars at step 0, and the report next to them; TensorBoard shows no HTML."""
    folder = target.folder / (target.run or content.name.replace("/", "-"))
    writer = ScalarWriter(folder)
    writer.write(0, content.values)
    writer.close()
    (folder / content.html.name).write_bytes(content.html.read_bytes())
    return str(folder)


TRACKERS: dict[str, Callable[[PublishedRun, Target], str]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
    "tensorboard": _tensorboard,
}
