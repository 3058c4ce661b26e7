"""Drives a newcomer's first minutes and prints their times: ``python tests/first_minutes.py [--python PYTHON]``.

Without ``--python`` it makes a fresh virtual environment and installs this checkout into it, as the README says.
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
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
ANSWER_WITHIN_SECONDS = 10.0  # from `sawtooth demo` to the first example's verdict, on a machine with two free cores
PATIENCE_SECONDS = 300.0
DEMO = "sawtooth demo to the first example's verdict"


class Times:
    """Prints each step with the seconds it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def take(self, what: str, step: Callable[[], str]) -> str:
        began = time.monotonic()
        result = step()
        self.seconds[what] = time.monotonic() - began
        print(f"{self.seconds[what]:7.1f} s  {what}", flush=True)
        return result


def main() -> int:
    """Run the minutes; return 1 where the first answer took too long."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", default=None, help="an environment's Python where sawtooth is installed already")
    chosen = options.parse_args().python
    times = Times()
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as name:
        folder = Path(name)
        python = chosen or times.take("a fresh environment with pip install .", lambda: installed(folder / "venv"))
        run = [python, "-P", "-m", "sawtooth"]
        environment = {**os.environ, "SAWTOOTH_DATA": str(folder / "data"), "BROWSER": "true"}
        if chosen:
            environment["PYTHONPATH"] = str(ROOT)
        port = free_port()
        server: list[subprocess.Popen[bytes]] = []
        try:
            run_id = times.take(DEMO, lambda: first_answer(run, environment, port, folder / "data", server))
            print(f"           {output([*run, 'report', run_id], environment).splitlines()[1]}")
            trace = str(ROOT / "sample_traces" / "gpt" / "trace.json.gz")
            times.take("sawtooth ingest of a trace", lambda: output([*run, "ingest", trace, "--name", "mine"], environment))
            times.take("sawtooth report of it", lambda: output([*run, "report", "mine"], environment))
        finally:
            for process in server:
                process.terminate()
                process.wait(30)
    return 0 if times.seconds[DEMO] <= ANSWER_WITHIN_SECONDS else 1


def installed(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True)
    return python


def first_answer(
    run: list[str], environment: dict[str, str], port: int, data: Path, server: list[subprocess.Popen[bytes]]
) -> str:
    """Start the demo; return the first example's id as soon as the server has its verdict, which the Runs page shows within a second."""
    log = (data.parent / "server.log").open("wb")
    server.append(subprocess.Popen([*run, "demo", "--no-open", "--port", str(port)], env=environment, stdout=log, stderr=log))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        cards = list((data / "derived").glob("*.card.msgpack"))
        if cards and answers(port):
            return cards[0].name.split(".")[0]
        time.sleep(0.1)
    raise SystemExit("The demo showed no verdict.")


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
            return True
    except OSError:
        return False


def output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
