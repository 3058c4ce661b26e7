"""Run a script in another Python process with ``sys.remote_exec`` of Python 3.14 (PEP 768).

Caller and target must run the same version of Python, so the target's own executable makes the call. The target is not paused, because the
call only writes the script's name into the target's memory. The target's main thread reads the name at its next check for signals.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sawtooth.ingest.capture.attach.targets import Process
from sawtooth.ingest.loop.command import PYTHON

MIN_VERSION = (3, 14)
MAX_CALL_S = 20.0  # Starting a Python takes a tenth of a second, or some seconds on a shared file system.
DISABLED = "PYTHON_DISABLE_REMOTE_DEBUG"
DISABLED_OPTIONS = ("disable_remote_debug", "disable-remote-debug")  # Python's option -X accepts both spellings.
VERSION_PROGRAM = "import json, sys; print(json.dumps([list(sys.version_info[:2]), hasattr(sys, 'remote_exec')]))"
CALL_PROGRAM = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
PERMISSION = (
    "this user may not write into the memory of process {pid}. Allow it with `sysctl kernel.yama.ptrace_scope=0`, or with CAP_SYS_PTRACE (root; "
    "docker run --cap-add=SYS_PTRACE)"
)


class RemoteExecution:
    """Calls of ``sys.remote_exec``. Tests replace this class with another way to run a script."""

    def why_not(self, target: Process) -> str | None:
        """Return why ``target`` cannot run a script and what to do; None if it can."""
        if _namespace(target.pid) != _namespace(os.getpid()):
            return f"process {target.pid} is in a container, so run sawtooth attach inside the container"
        if target.environment.get(DISABLED) or _disabled_by(target.command):
            return f"process {target.pid} was started with remote execution turned off ({DISABLED} or -X disable_remote_debug)"
        program = _program(target.pid)
        if not PYTHON.fullmatch(Path(program).name):
            return f"process {target.pid} runs {program or 'an unknown program'}, which is not a Python executable, or its file was replaced after the process started"
        answer, trouble = _ask(target, VERSION_PROGRAM)
        try:
            version, has_it = json.loads(answer)
        except ValueError:
            return f"{program} cannot be asked for its version ({trouble or 'no answer'})"
        if tuple(version) < MIN_VERSION:
            least, own = (".".join(map(str, numbers)) for numbers in (MIN_VERSION, version))
            return f"process {target.pid} runs Python {own}, but only Python {least} or newer accepts code from another process"
        return None if has_it else f"{program} was built without remote execution (--without-remote-debug)"

    def execute(self, target: Process, script: Path) -> str | None:
        """Ask ``target`` to run ``script`` soon; return the reason if that failed, None on success."""
        if not target.is_alive():
            return f"process {target.pid} has ended"
        _, trouble = _ask(target, CALL_PROGRAM, str(target.pid), str(script))
        if trouble.startswith("PermissionError"):
            return PERMISSION.format(pid=target.pid)
        return trouble or None


def _ask(target: Process, program: str, *arguments: str) -> tuple[str, str]:
    """Run ``program`` with the target's Python; return its output and its last error line.

    Python runs isolated (-I -S), so that neither the environment nor the current folder adds code.
    """
    command = [_program(target.pid), "-I", "-S", "-c", program, *arguments]
    try:
        finished = subprocess.run(
            command, env=_environment_for(target), timeout=MAX_CALL_S, capture_output=True, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return finished.stdout, (finished.stderr.strip().splitlines() or ["it failed"])[-1] if finished.returncode else ""


def _environment_for(target: Process) -> Mapping[str, str]:
    """Return this process's environment with the target's library search path, which its Python may need."""
    path = target.environment.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": path} if path else os.environ


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/exe").readlink())  # The kernel appends " (deleted)" if the file was replaced.
    return ""


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    return ""


def _disabled_by(command: tuple[str, ...]) -> bool:
    return any(word.removeprefix("-X") in DISABLED_OPTIONS for word in command)
