"""Inject the recorder's hook into running trainings, and remove it again.

Scripts are sent to the processes, which write answers into files. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sawtooth.ingest.capture.attach.remote import RemoteExecution
from sawtooth.ingest.capture.attach.targets import Process
from sawtooth.installation import IMPORT_ROOT

if TYPE_CHECKING:
    from sawtooth.ingest.capture.attach.inside import HookAnswer

ENTER_SCRIPT = Path(__file__).with_name("enter.py")
# An answer is awaited at most this long. A main thread that waits for its GPU or for a batch returns to Python within seconds.
MAX_ANSWER_S = 30.0
POLL_PERIOD_S = 0.01  # Pause between two checks for answers.
REPEAT_PAUSE_S = 0.02  # Pause before a request is repeated because an optimizer's hook was running. A hook takes microseconds.
LEASE_FILE = "attached"  # The modification time of this file shows that the recorder is still alive.
BEGIN_FILE = "begin_ns"  # This file contains the time from which all ranks count steps.
LEAD_NS = 500_000_000  # Time between writing BEGIN_FILE and the first counted step, so that each rank has read the file.
NO_ANSWER = (
    "process {pid} did not answer within {seconds:.0f} s. Its main thread is in a long call outside Python, or the disk is full"
)


class Injection:
    """The hook in the processes ``targets``, which write into ``folder``.

    ``environment`` contains the variables of `sawtooth run` that the hook reads.
    """

    def __init__(
        self,
        targets: Sequence[Process],
        folder: Path,
        environment: Mapping[str, str],
        remote: RemoteExecution,
        answer_s: float = MAX_ANSWER_S,
    ) -> None:
        self._targets, self._folder, self._remote, self._answer_s = targets, folder, remote, answer_s
        self._settings = {"folder": str(folder), "root": str(IMPORT_ROOT), "environment": dict(environment)}
        self._sent = 0
        self.stays: dict[int, list[str]] = {}  # What remains loaded after ``detach``, by PID.

    def attach(self) -> str | None:
        """Inject the hook into all targets or none; return the reason if this failed, else None."""
        self.renew()
        answers = self._ask(self._targets, "attach", processes=len(self._targets))
        error = next((answer["error"] for answer in answers.values() if "error" in answer), None)
        if error is not None:
            self._ask([target for target in self._targets if "error" not in answers[target.pid]], "detach")
            return error
        part = self._folder / f"{BEGIN_FILE}.part"
        part.write_text(str(time.monotonic_ns() + (LEAD_NS if len(self._targets) > 1 else 0)))
        part.replace(self._folder / BEGIN_FILE)
        return None

    def renew(self) -> None:
        """Renew the lease. Without renewal, the hooks end after half a minute."""
        with contextlib.suppress(OSError):
            (self._folder / LEASE_FILE).touch()

    def detach(self) -> list[str]:
        """Remove the hook from all targets that still run.

        Returns messages about what stays loaded in each process, or why the hook could not be removed.
        """
        running = [target for target in self._targets if target.is_alive()]
        sentences = []
        for pid, answer in self._ask(running, "detach").items():
            ended = not next(target for target in running if target.pid == pid).is_alive()
            if "error" not in answer:
                self.stays[pid] = answer["stays"]
                sentences.append(f"Detached from process {pid}. What stays there: {', '.join(self.stays[pid])}.")
            elif not ended:
                sentences.append(f"Not detached from process {pid}: {answer['error']}. Its hook ends itself within a minute.")
        return sentences

    def _ask(self, targets: Sequence[Process], action: str, **values: Any) -> dict[int, HookAnswer]:
        """Send a request to each target and return the answers by PID.

        Repeats the request if a target answers "again".
        """
        deadline = time.monotonic() + self._answer_s
        answers: dict[int, HookAnswer] = {}
        awaited = {target.pid: (target, self._send(target, action, values)) for target in targets}
        while awaited:
            for pid, (target, sent) in list(awaited.items()):
                answer = sent.answer(is_over=time.monotonic() > deadline or not target.is_alive())
                if answer is None:
                    continue
                if answer.get("again") and time.monotonic() < deadline:
                    time.sleep(REPEAT_PAUSE_S)
                    awaited[pid] = target, self._send(target, action, values)
                    continue
                del awaited[pid]
                answers[pid] = (
                    answer
                    if "again" not in answer
                    else {"error": f"process {pid} was inside an optimizer's hook at every attempt"}
                )
                if answer.get("silent"):
                    seconds = self._answer_s
                    why = NO_ANSWER.format(pid=pid, seconds=seconds) if target.is_alive() else f"process {pid} has ended"
                    answers[pid] = {"error": why}
            time.sleep(POLL_PERIOD_S)
        return answers

    def _send(self, target: Process, action: str, values: Mapping[str, Any]) -> _SentScript:
        self._sent += 1
        sent = _SentScript(self._folder / f"answer-{target.pid}-{self._sent}.json", action)
        sent.write({**self._settings, **values, "do": action, "answer": str(sent.file)})
        sent.error = self._remote.execute(target, sent.script)
        return sent


class _SentScript:
    """A script that was sent to a process, and the file for its answer.

    The script is outside the recording's folder, which may be deleted before a slow process reads the script.
    """

    def __init__(self, file: Path, action: str) -> None:
        self.file, self._action = file, action
        self.error: str | None = None  # The reason why the script could not be sent.
        handle, name = tempfile.mkstemp(prefix="sawtooth-attach-", suffix=".py")
        os.close(handle)
        self.script = Path(name)

    def write(self, settings: Mapping[str, Any]) -> None:
        """Write the script."""
        self.script.write_text(f"{ENTER_SCRIPT.read_text()}\n\nenter(json.loads({json.dumps(settings)!r}))\n")

    def answer(self, *, is_over: bool) -> HookAnswer | None:
        """Return the answer, or None if there is no answer yet.

        If the wait ``is_over`` without an answer, the result is {"silent": True}.
        """
        if self.error is not None:
            self.script.unlink(missing_ok=True)  # The process was never asked to run the script.
            return {"error": self.error}
        with contextlib.suppress(OSError):
            answer: HookAnswer = json.loads(self.file.read_text())
            self.script.unlink(missing_ok=True)
            return answer
        if not is_over:
            return None
        if self._action == "attach":
            self.script.write_text("")  # A process that reads the script later must not attach. A late detach is harmless.
        return {"silent": True}
