"""Start trainings as forks of a process that has imported PyTorch.

A start then takes milliseconds, and a crash ends only that fork. ``python forked_torch.py serve SOCKET`` is that process.
``python forked_torch.py start SOCKET train.py`` runs a training in a fork of it, with the environment, folder, output and exit
code of the starting command. This module uses only the standard library and PyTorch.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOOK = "_sawtooth_recorder.ingest.capture.command.hook"
LONGEST_S = 120  # Longest time of a training.
MOST_BYTES = 1 << 17  # Largest size of an environment.
READY_S = 240


def serve(address: str) -> None:
    """Start a training for each connection, one after the other, until standard input ends."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # A fork cannot use CUDA if its parent has initialized it.

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:  # Standard input has ended, so the process that started this one has ended or was killed.
            os._exit(0)
        connection, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        child = os.fork()
        if not child:
            listener.close()
            connection.close()
            _train(json.loads(message), files)
            return
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.send(str(code).encode())
        connection.close()


def _train(about: dict[str, object], files: list[int]) -> None:
    signal.alarm(LONGEST_S)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(str(about["folder"]))
    os.environ.clear()
    os.environ.update(about["environment"], CUDA_VISIBLE_DEVICES="")  # type: ignore[call-overload]
    if HOOK in sys.modules:  # The hook of the server does nothing in a fork.
        sys.modules[HOOK].install(sys.modules["torch.optim.optimizer"])
    sys.argv = [str(about["script"])]
    runpy.run_path(str(about["script"]), run_name="__main__")


def start(address: str, script: str) -> None:
    """Run ``script`` in a fork of the server at ``address``, and exit with its exit code."""
    about = {"script": script, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(about).encode()], [0, 1, 2])
        code = int(connection.recv(16))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


class Server:
    """A process that starts trainings.

    ``ready`` waits for it and returns the command that runs a script in a fork of it.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: Path) -> None:
        self._process, self._address = process, address

    def ready(self) -> list[str]:
        """Return the words of the command that come before the training's own words."""
        until = time.monotonic() + READY_S
        while not self._address.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the process that imports PyTorch did not start")
            time.sleep(0.02)
        return [sys.executable, __file__, "start", str(self._address)]


@contextmanager
def server(folder: Path, environment: dict[str, str], *before: str) -> Iterator[Server]:
    """Yield a server that works in ``folder``.

    ``before`` are words before the server's command, such as those of a recorder.
    """
    address = folder / "socket"
    words = [*before, sys.executable, __file__, "serve", str(address)]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, env=environment, cwd=folder, start_new_session=True, stdin=subprocess.PIPE, **silent)
    try:
        yield Server(process, address)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    {"serve": serve, "start": start}[sys.argv[1]](*sys.argv[2:])
