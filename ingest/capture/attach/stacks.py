"""Functions in which a process's main thread spends its time, from stacks that py-spy reads.

py-spy (https://github.com/benfred/py-spy) is a separate program, which is used if it is installed. With ``--nonblocking``, py-spy does not
pause the process. A few stacks change while py-spy reads them, so these stacks are missing or wrong.
Standard library only.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

STACKS_PER_S = 20  # This rate gives 300 stacks in 15 s and costs the host little.
MAX_END_S = 10.0  # py-spy is killed if it takes longer to end. It usually writes its file within a second.
MAX_FUNCTIONS = 5  # Number of functions that the message names, so that it stays one line.
MIN_STACKS = 20  # With fewer stacks, the result would be chance.
INSTALLED = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|^<")
FRAME = re.compile(r"(?P<function>.+) \((?P<file>.+?)(:(?P<line>\d+))?\)")
INSTALL = "No Python stacks, because py-spy is not installed. Install it with `pip install py-spy` in Sawtooth's environment."
PERMISSION = (
    "No Python stacks, because this user may not read another process's memory. Allow it with `sysctl kernel.yama.ptrace_scope=0`, or with CAP_SYS_PTRACE "
    "(root; docker run --cap-add=SYS_PTRACE)."
)
FAILED = "No Python stacks, because py-spy failed ({why})."
TOO_FEW = (
    "No Python stacks, because py-spy read only {count} stacks, too few to name a function. Attach for longer (--seconds)."
)
DENIED = ("permission denied", "operation not permitted")  # py-spy's messages if the kernel refuses access.


class StackReader:
    """Reader of a process's stacks, which works from its creation until ``end``."""

    def __init__(self, pid: int, folder: Path, program: str | None = None) -> None:
        self._pid, self._file = pid, folder / "stacks.txt"
        program = program or installed_program()
        self._spy: subprocess.Popen[bytes] | None = None
        if program is not None:
            with contextlib.suppress(OSError):
                self._spy = subprocess.Popen(
                    _command(program, pid, self._file), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )

    def end(self) -> list[str]:
        """Stop py-spy; return a message with the main thread's functions, or why they are unknown."""
        if self._spy is None:
            return [INSTALL]
        if self._spy.poll() is None:
            self._spy.send_signal(signal.SIGINT)
        try:
            _, errors = self._spy.communicate(timeout=MAX_END_S)
        except subprocess.TimeoutExpired:
            self._spy.kill()
            _, errors = self._spy.communicate()
        with contextlib.suppress(OSError):
            return in_words(self._file.read_text(errors="replace"), self._pid)
        text = errors.decode(errors="replace").strip()
        if any(word in text.lower() for word in DENIED):
            return [PERMISSION]
        return [FAILED.format(why=(text.splitlines() or ["it wrote nothing"])[0].removeprefix("Error: ").rstrip("."))]


def installed_program() -> str | None:
    """Return the path of py-spy, from the folder of this Python or from PATH; None if not installed."""
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def _command(program: str, pid: int, file: Path) -> list[str]:
    options = ("--nonblocking", "--idle", "--threads", "--full-filenames", "--rate", str(STACKS_PER_S), "--format", "raw")
    return [program, "record", *options, "--output", str(file), "--pid", str(pid)]


def in_words(stacks: str, pid: int) -> list[str]:
    """Name the functions in which the main thread of ``pid`` spent its time.

    ``stacks`` is py-spy's raw format. A line has the frames of a stack, outermost first, and the number of times that the stack was seen.
    """
    functions: Counter[tuple[str, str]] = Counter()
    lines: Counter[tuple[str, str, str]] = Counter()
    for stack in stacks.splitlines():
        frames, _, count_text = stack.rpartition(" ")
        thread, *calls = frames.split(";")
        if not thread.startswith(f"thread ({pid})") or not calls or not count_text.isdecimal():
            continue
        parsed = [match for match in map(FRAME.fullmatch, calls) if match is not None]
        own = [match for match in parsed if not INSTALLED.search(match["file"])]
        for call in (own or parsed)[-1:]:  # The innermost frame in the user's code, or else the innermost frame.
            function = call["function"], call["file"]
            functions[function] += int(count_text)
            lines[(*function, call["line"] or "")] += int(count_text)
    total = sum(functions.values())
    if total < MIN_STACKS:
        return [TOO_FEW.format(count=total)]
    descriptions = []
    for (function_name, file), count in functions.most_common(MAX_FUNCTIONS):
        line = max((key for key in lines if key[:2] == (function_name, file)), key=lambda key: lines[key])[2]
        descriptions.append(f"{function_name} ({Path(file).name}:{line}) {100 * count / total:.0f} %")
    return [f"The main thread was in these functions of the training ({total} stacks): {', '.join(descriptions)}."]
