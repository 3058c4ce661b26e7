"""``sawtooth calibrate``: measures a GPU's dispatch time per kernel, to estimate steps from telemetry."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sawtooth.analysis.store.calibration import keep
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import say
from sawtooth.app.printable import json_text
from sawtooth.ingest.capture.dispatch import TorchBench
from sawtooth.ingest.capture.dispatch import calibrate as measure
from sawtooth.ingest.errors import UsageError


def calibrate(
    device: Annotated[int, typer.Option(help="Which GPU, as PyTorch counts them.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="How long each of four rates is measured.", min=1.0, max=60.0)] = 3.0,
    data: Annotated[Path | None, typer.Option(help="Data folder in which the result is kept.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure how much longer than its recorded duration a kernel keeps this GPU busy.

    The command needs PyTorch, and a GPU that no other program uses.
    """
    calibration = measure(TorchBench(device, _torch(device), _module("pynvml", "nvidia-ml-py")), seconds=seconds)
    keep(data_folder(data), calibration.name, (calibration.low_us, calibration.dispatch_us, calibration.high_us))
    if as_json:
        say(json_text(asdict(calibration), 1))
        return
    say(
        f"{fmt.clean(calibration.name)}: {calibration.dispatch_us:.2f} µs a kernel ({calibration.low_us:.2f} to {calibration.high_us:.2f}). "
        "Runs recorded on this model use it from now on."
    )


def _torch(device: int) -> Any:
    torch = _module("torch", "PyTorch")
    if not torch.cuda.is_available() or device >= torch.cuda.device_count():
        raise UsageError(f"PyTorch sees no CUDA GPU {device} here.")
    return torch


def _module(name: str, called: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"Calibrating needs {called}, which is not installed here.") from error
