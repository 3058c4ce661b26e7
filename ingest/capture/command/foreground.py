"""The training's command in the foreground: exit codes and signals.

Standard library only.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from sawtooth.ingest.children import why_not_started

NOT_FOUND = 127  # a shell's exit code for a command that does not exist
NOT_RUNNABLE = 126  # a shell's exit code for a command that cannot be executed
# Schedulers send these signals before a job's time is over, so that the training saves a checkpoint (for example, Slurm's --signal=USR1@60).
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # sent to all processes of the foreground
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_in_foreground(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit code as a shell would."""
    try:
        child = subprocess.Popen(words, env=environment)
    except OSError as error:
        print(f"sawtooth run: {why_not_started(words[0], error)}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
    with _signals_to(child):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass on the signals that only this process receives.

    Ctrl-C and Ctrl-\\ are not passed on, because the terminal also sends them to the training. A second Ctrl-C would interrupt its cleanup.
    """
    before = {number: signal.signal(number, signal.SIG_IGN) for number in FROM_TERMINAL}
    before |= {number: signal.signal(number, lambda sent, _: child.send_signal(sent)) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
