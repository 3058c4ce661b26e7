"""Send a run's numbers, its HTML report and a link to an experiment tracker by its own library.

Addresses and keys are those that the library reads itself, such as WANDB_API_KEY, MLFLOW_TRACKING_URI and TRACKIO_SERVER_URL.
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

FOLDER = "sawtooth"  # of a run's files


@dataclass(frozen=True)
class TrackerResponse:
    """The data to send: the run's name, its numbers, its report's files, and a link to the page.

    The link is "" if there is none.
    """

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


def publish(tracker: str, answer: TrackerResponse, target: Target) -> str:
    """Send the answer and return where it is.

    Raises UsageError if the library is missing, SawtoothError if it fails.
    """
    send = TRACKERS[tracker]
    try:
        return send(answer, target)
    except (SawtoothError, OSError):
        raise
    except Exception as error:  # each library has its own errors, and no common base
        first = str(error).strip().partition("\n")[0][:300]
        raise SawtoothError(f"{tracker} did not take the report ({type(error).__name__}: {first}).") from error


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"Publishing to {name} needs its library: pip install {name}.") from None


def _wandb(answer: TrackerResponse, target: Target) -> str:
    wandb: Any = _library("wandb")
    joined = {"id": target.run, "resume": "must"} if target.run else {"name": answer.name}
    run = wandb.init(project=target.project, job_type="sawtooth", **joined)
    try:
        # A trainer's own steps must rise, so these values stand in the summary and not at a step.
        run.summary.update({**answer.values, **({"sawtooth/url": answer.url} if answer.url else {})})
        run.log({"sawtooth/report": wandb.Html(answer.html.read_text(encoding="utf-8"), inject=False)})
        artifact = wandb.Artifact(f"sawtooth-{run.id}", type="report")
        artifact.add_file(str(answer.html))
        artifact.add_file(str(answer.report))
        run.log_artifact(artifact)
        return str(getattr(run, "url", None) or f"the offline run {run.id}: send it with wandb sync")
    finally:
        run.finish()


def _mlflow(answer: TrackerResponse, target: Target) -> str:
    mlflow: Any = _library("mlflow")
    mlflow.set_experiment(target.project)
    with mlflow.start_run(**({"run_id": target.run} if target.run else {"run_name": answer.name})) as run:
        mlflow.log_metrics(dict(answer.values))
        mlflow.log_artifact(str(answer.html), artifact_path=FOLDER)
        mlflow.log_artifact(str(answer.report), artifact_path=FOLDER)
        if answer.url:
            mlflow.set_tag("sawtooth.url", answer.url)
        return f"run {run.info.run_id} of experiment {target.project}"


def _trackio(answer: TrackerResponse, target: Target) -> str:
    trackio: Any = _library("trackio")
    trackio.init(project=target.project, name=target.run or answer.name, **({"resume": "must"} if target.run else {}))
    try:
        trackio.log({**answer.values, "sawtooth/report": trackio.Html(answer.html.read_text(encoding="utf-8"))})
        trackio.log_artifact(str(answer.report), name="sawtooth", type="report")
        if answer.url:
            trackio.log({"sawtooth/url": answer.url})
    finally:
        trackio.finish()
    return f"run {target.run or answer.name} of project {target.project}"


def _tensorboard(answer: TrackerResponse, target: Target) -> str:
    """Write the numbers as scalars at step 0; TensorBoard shows no HTML, so the report lies beside them."""
    folder = target.folder / (target.run or answer.name.replace("/", "-"))
    writer = ScalarWriter(folder)
    writer.write(0, answer.values)
    writer.close()
    (folder / answer.html.name).write_bytes(answer.html.read_bytes())
    return str(folder)


TRACKERS: dict[str, Callable[[TrackerResponse, Target], str]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
    "tensorboard": _tensorboard,
}
