"""Start trainings as forks of a process that has imported PyTorch.

A start then takes milliseconds, and a crash ends only that fork. ``python forked_torch.py serve SOCKET`` is the process that forks.
``Server.ready`` writes a program ``python`` next to the socket. This program runs a script (``train.py …``) or a module (``-m train …``) in a
fork. The fork has the program's environment, folder and output, and the program exits with the fork's exit code. This module uses only the
standard library and PyTorch.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import shlex
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
LOADED = ("torch", "torch._dynamo", "torch._inductor.config")  # An optimizer imports the second module, a profile the third.
MAX_TRAINING_S = 240  # Longest time of a training.
MAX_BYTES = 1 << 17  # Longest message. It contains the environment of a training.
MAX_START_S = 240  # Longest time until the server accepts trainings.


def serve(address: str) -> None:
    """Start a training for each connection, one after the other, until standard input ends."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # A fork cannot use CUDA if its parent has initialized it.
    for name in LOADED:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:  # Standard input has ended, so the process that started this one has ended or was killed.
            os._exit(0)
        connection, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(connection, MAX_BYTES, 3)
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


def _train(about: dict[str, Any], files: list[int]) -> None:
    signal.alarm(MAX_TRAINING_S)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(about["folder"])
    os.environ.clear()
    os.environ.update(about["environment"], CUDA_VISIBLE_DEVICES="")
    if HOOK in sys.modules:  # A fork replaces the server's hook, and does not time the server's loaders.
        hook = sys.modules[HOOK]
        sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks.clear()
        hook.install(sys.modules["torch.optim.optimizer"])
        hook.watch_loaders(sys.modules["torch.utils.data._utils.fetch"])
    program, *arguments = about["words"]
    if program == "-m":
        sys.path[0], sys.argv = str(Path.cwd()), arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(program).resolve().parent), [program, *arguments]
        runpy.run_path(program, run_name="__main__")


def start(address: str, *words: str) -> None:
    """Run the script or module in ``words`` in a fork of the server at ``address``.

    This process exits with the exit code of the fork.
    """
    about = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(about).encode()], [0, 1, 2])
        code = int(connection.recv(16))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


class Server:
    """A process that starts trainings.

    ``ready`` waits for it and returns the path of the program that runs a script in a fork of it.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: Path) -> None:
        self._process, self._address = process, address

    def ready(self) -> str:
        """Return the path of a program that takes the words of a Python command."""
        until = time.monotonic() + MAX_START_S
        while not self._address.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the process that imports PyTorch did not start")
            time.sleep(0.02)
        python = self._address.with_name("python")
        if not python.exists():
            words = shlex.join([sys.executable, __file__, "start", str(self._address)])
            python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            python.chmod(0o755)
        return str(python)


@contextmanager
def server(folder: Path, environment: dict[str, str], *before: str) -> Iterator[Server]:
    """Yield a server that works in ``folder``.

    ``before`` are words before the server's command, such as those of a recorder. ``folder`` is also the temporary folder, in which a
    killed recorder leaves files.
    """
    address = folder / "socket"
    words = [*before, sys.executable, __file__, "serve", str(address)]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**environment, "TMPDIR": str(folder)}
    process = subprocess.Popen(words, env=environment, cwd=folder, start_new_session=True, stdin=subprocess.PIPE, **silent)
    try:
        yield Server(process, address)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    {"serve": serve, "start": start}[sys.argv[1]](*sys.argv[2:])
