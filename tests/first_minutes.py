"""Measure the steps of a newcomer's first ten minutes: ``python -m tests.first_minutes``.

The script installs a fresh clone of this checkout into a fresh environment, as the README describes. Then it measures the time
until a browser shows the demo's first answer, the time of a recorded training, and the times to ingest, report and compare a
trace. With ``--python PYTHON``, it uses an environment that already has Sawtooth.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path

from sawtooth.app.jobs.first_answer import first_answer
from tests.support.chromium import executable

ROOT = Path(__file__).resolve().parent.parent
ANSWER, HELP = "sawtooth demo, to the example's answer in the browser", "sawtooth --help"
WITHIN_SECONDS = {ANSWER: 10.0, HELP: 0.25}  # Limits for a machine with two free cores.
PATIENCE_SECONDS = 300.0
# A newcomer's script: it loads its data slowly, has its own flags, and was never profiled.
TRAINING = """
import argparse, time, torch
flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.ones(256)
for step, batch in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=16)):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if step >= flags.parse_args().steps: break
"""


class Times:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def take(self, what: str, step: Callable[[], str]) -> str:
        began = time.monotonic()
        result = step()
        self.seconds[what] = time.monotonic() - began
        print(f"{self.seconds[what]:7.2f} s  {what}", flush=True)
        return result


def main() -> int:
    """Run all steps; return 1 if one took too long."""
    options = argparse.ArgumentParser(prog="python -m tests.first_minutes", description=__doc__)
    options.add_argument("--python", default=None, help="the Python of an environment in which sawtooth is already installed")
    chosen = options.parse_args().python
    times = Times()
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as name:
        folder = Path(name)
        python = chosen or installed(folder, times)
        run = [python, "-P", "-m", "sawtooth"]
        environment = {**os.environ, "SAWTOOTH_DATA": str(folder / "data")}
        # With this, the script finds the PyTorch of this environment.
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        environment.pop("PYTHONPATH", None)
        if chosen:
            environment["PYTHONPATH"] = str(ROOT)
        times.take(HELP, lambda: output([*run, "--help"], environment))
        demonstrate(run, environment, times, folder)
        minutes(run, environment, times, folder)
    late = [what for what, limit in WITHIN_SECONDS.items() if times.seconds.get(what, 0.0) > limit]
    for what in late:
        print(f"too long: {what} takes {times.seconds[what]:.2f} s; the limit is {WITHIN_SECONDS[what]:g} s")
    return 1 if late else 0


def installed(folder: Path, times: Times) -> str:
    """Clone this checkout and install it into a new environment; return the environment's Python."""
    clone, python = folder / "sawtooth", str(folder / "venv" / "bin" / "python")
    times.take("git clone", lambda: output(["git", "clone", "-q", str(ROOT), str(clone)], dict(os.environ)))
    times.take("python3 -m venv", lambda: output([sys.executable, "-m", "venv", str(folder / "venv")], dict(os.environ)))
    times.take("pip install .", lambda: output([python, "-m", "pip", "install", "-q", str(clone)], dict(os.environ)))
    return python


def minutes(run: list[str], environment: dict[str, str], times: Times, folder: Path) -> None:
    """Record a training; ingest a trace, report it and compare it."""
    if util.find_spec("torch"):
        (folder / "train.py").write_text(TRAINING)
        record = [*run, "run", "--after", "1", "-o", str(folder / "x.sawtooth"), str(folder / "train.py"), "--steps", "120"]
        times.take("sawtooth run train.py --steps 120", lambda: output(record, environment))
    else:
        print("           no training is recorded, because PyTorch is not installed")
    slow, fixed = (str(ROOT / "sample_traces" / name) for name in ("resnet_starved", "resnet_fixed"))
    times.take(
        "sawtooth ingest of a trace with telemetry", lambda: output([*run, "ingest", slow, "--name", "mine"], environment)
    )
    sentence = times.take("sawtooth report of it", lambda: output([*run, "report", "mine"], environment))
    print(f"           {sentence.splitlines()[1]}")
    output([*run, "ingest", fixed, "--name", "fixed"], environment)
    sentence = times.take(
        "sawtooth compare with the fixed run", lambda: output([*run, "compare", "mine", "fixed"], environment)
    )
    print(f"           {sentence.splitlines()[0]}")


def demonstrate(run: list[str], environment: dict[str, str], times: Times, folder: Path) -> None:
    """Start the demo and wait until the browser that it opens shows the answer of the first example."""
    chromium = executable() if util.find_spec("playwright") else None
    if chromium is None:
        print("           the demo is not measured, because there is no browser")
        return
    opened, browser = folder / "opened", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    server: list[subprocess.Popen[bytes]] = []

    def begin() -> str:
        with (folder / "server.log").open("wb") as log:
            command = [*run, "demo", "--port", str(free_port())]
            server.append(
                subprocess.Popen(command, env=environment | {"BROWSER": f"{browser} %s"}, stdout=log, stderr=subprocess.STDOUT)
            )
        return seen(chromium, opened)

    try:
        print(f"           {times.take(ANSWER, begin)}")
    finally:
        for process in server:
            process.terminate()
            process.wait(30)


def seen(chromium: str, opened: Path) -> str:
    """Return the first example's answer as soon as the page that the browser opens shows it."""
    from playwright.sync_api import sync_playwright

    expected = first_answer()
    assert expected is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not opened.exists():
            if time.monotonic() > deadline:
                raise SystemExit("The demo did not open a browser.")
            time.sleep(0.05)
        page.goto(opened.read_text().strip())
        page.get_by_text(expected.headline).first.wait_for(timeout=PATIENCE_SECONDS * 1000)
        browser.close()
    return expected.headline


def output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
