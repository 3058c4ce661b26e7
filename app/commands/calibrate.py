"""``sawtooth calibrate``: measure a GPU's dispatch time, to compute step times from telemetry."""

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
    device: Annotated[int, typer.Option(help="PyTorch's index of the GPU.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="Duration of each of the four measurements.", min=1.0, max=60.0)] = 3.0,
    data: Annotated[Path | None, typer.Option(help="Data folder that stores the result.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure the time that this GPU needs to dispatch a kernel.

    Sawtooth uses it to compute step times from telemetry. The command needs PyTorch and an otherwise idle GPU.
    """
    calibration = measure(TorchBench(device, _torch(device), _module("pynvml", "nvidia-ml-py")), seconds=seconds)
    keep(data_folder(data), calibration.name, (calibration.low_us, calibration.dispatch_us, calibration.high_us))
    if as_json:
        say(json_text(asdict(calibration), 1))
        return
    say(
        f"{fmt.clean(calibration.name)}: {calibration.dispatch_us:.2f} µs per kernel ({calibration.low_us:.2f} to {calibration.high_us:.2f}). "
        "From now on, Sawtooth uses this time for runs on this GPU model."
    )


def _torch(device: int) -> Any:
    torch = _module("torch", "PyTorch")
    if not torch.cuda.is_available() or device >= torch.cuda.device_count():
        raise UsageError(f"PyTorch sees no CUDA GPU {device} here. Check nvidia-smi, or name another GPU with --device.")
    return torch


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"Calibrating needs {package}, which is not installed here. Install it in this environment."
        ) from error
