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

NOT_FOUND = 127  # Shells use this exit code for a command that does not exist.
NOT_RUNNABLE = 126  # Shells use this exit code for a command that cannot be executed.
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)  # The terminal sends these signals to all processes of the foreground.
# Only this process receives these signals. Schedulers send them before a job's time is over, so that the training saves a checkpoint (for
# example, Slurm's --signal=USR1@60).
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


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
    """Forward the signals that only this process receives.

    Ctrl-C and Ctrl-\\ are not forwarded, because the terminal also sends them to the training. A second Ctrl-C would interrupt the
    training's cleanup.
    """
    before = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINAL_SIGNALS}
    before |= {number: signal.signal(number, lambda sent, _: child.send_signal(sent)) for number in FORWARDED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
