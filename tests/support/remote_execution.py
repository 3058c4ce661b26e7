"""Remote execution of a file in a training, by a signal instead of ``sys.remote_exec``."""

import os
import signal
from pathlib import Path

from sawtooth.ingest.capture.attach.remote import RemoteExecution
from sawtooth.ingest.capture.attach.targets import Process


class BySignal(RemoteExecution):
    """Lets a training execute a file by a signal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def why_not(self, target: Process) -> str | None:
        return None

    def execute(self, target: Process, script: Path) -> str | None:
        (self._folder / f"script-{target.pid}").write_text(str(script))
        os.kill(target.pid, signal.SIGUSR1)
        return None
