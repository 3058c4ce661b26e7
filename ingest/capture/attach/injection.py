"""Injects the recorder's hook into running trainings, and removes it again.

It sends scripts to the processes and waits for their answers. Standard library only.
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

ENTER = Path(__file__).with_name("enter.py")
ANSWER_S = 30.0  # limit for an answer; a main thread that waits for its GPU or a batch returns to Python within seconds
LOOK_EVERY_S = 0.01  # between checks for answers
AGAIN_S = 0.02  # pause before a request is repeated, if an optimizer's hook was running; a hook takes microseconds
LEASE = "attached"  # The modification time of this file shows that the recorder is still alive.
BEGIN = "begin_ns"  # This file contains the time from which all ranks count steps.
LEAD_NS = 500_000_000  # time between writing that file and the first counted step, so that each rank has read it
SILENT = "process {pid} did not answer within {seconds:.0f} s. Its main thread is in a long call outside Python, or the disk for its answer is full"


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
        answer_s: float = ANSWER_S,
    ) -> None:
        self._targets, self._folder, self._remote, self._answer_s = targets, folder, remote, answer_s
        self._settings = {"folder": str(folder), "root": str(IMPORT_ROOT), "environment": dict(environment)}
        self._sent = 0
        self.stays: dict[int, list[str]] = {}  # by PID, what remains loaded; filled by ``detach``

    def attach(self) -> str | None:
        """Inject the hook into all targets or none; return the reason if it failed, None on success."""
        self.renew()
        answers = self._ask(self._targets, "attach", processes=len(self._targets))
        trouble = next((answer["error"] for answer in answers.values() if "error" in answer), None)
        if trouble is not None:
            self._ask([each for each in self._targets if "error" not in answers[each.pid]], "detach")
            return trouble
        part = self._folder / f"{BEGIN}.part"
        part.write_text(str(time.monotonic_ns() + (LEAD_NS if len(self._targets) > 1 else 0)))
        part.replace(self._folder / BEGIN)
        return None

    def renew(self) -> None:
        """Show the hooks that the recorder is alive; otherwise they end themselves after half a minute."""
        with contextlib.suppress(OSError):
            (self._folder / LEASE).touch()

    def detach(self) -> list[str]:
        """Remove the hook from all targets that still run.

        Return sentences that say what stays loaded in each process, or why the hook could not be removed.
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

    def _ask(self, targets: Sequence[Process], action: str, **more: Any) -> dict[int, HookAnswer]:
        """Send a request to each target and return the answers by PID.

        Repeats the request if a target answers "again".
        """
        until = time.monotonic() + self._answer_s
        answers: dict[int, HookAnswer] = {}
        awaited = {target.pid: (target, self._send(target, action, more)) for target in targets}
        while awaited:
            for pid, (target, sent) in list(awaited.items()):
                answer = sent.answer(is_over=time.monotonic() > until or not target.is_alive())
                if answer is None:
                    continue
                if answer.get("again") and time.monotonic() < until:
                    time.sleep(AGAIN_S)
                    awaited[pid] = target, self._send(target, action, more)
                    continue
                del awaited[pid]
                answers[pid] = (
                    answer
                    if "again" not in answer
                    else {"error": f"process {pid} was inside an optimizer's hook at every attempt"}
                )
                if answer.get("silent"):
                    seconds = self._answer_s
                    why = SILENT.format(pid=pid, seconds=seconds) if target.is_alive() else f"process {pid} has ended"
                    answers[pid] = {"error": why}
            time.sleep(LOOK_EVERY_S)
        return answers

    def _send(self, target: Process, action: str, more: Mapping[str, Any]) -> _Sent:
        self._sent += 1
        sent = _Sent(self._folder / f"answer-{target.pid}-{self._sent}.json", action)
        sent.write({**self._settings, **more, "do": action, "answer": str(sent.file)})
        if (trouble := self._remote.execute(target, sent.script)) is not None:
            sent.trouble = trouble
        return sent


class _Sent:
    """A script that was sent, and the file for its answer.

    The script is not in the recording's folder, which may be deleted before a slow process reads the script.
    """

    def __init__(self, file: Path, action: str) -> None:
        self.file, self._action = file, action
        self.trouble: str | None = None
        handle, name = tempfile.mkstemp(prefix="sawtooth-attach-", suffix=".py")
        os.close(handle)
        self.script = Path(name)

    def write(self, settings: Mapping[str, Any]) -> None:
        """Write the script."""
        self.script.write_text(f"{ENTER.read_text()}\n\nenter(json.loads({json.dumps(settings)!r}))\n")

    def answer(self, *, is_over: bool) -> HookAnswer | None:
        """Return the answer; None while there is none, {"silent": True} if ``is_over`` and none came."""
        if self.trouble is not None:
            self.script.unlink(missing_ok=True)  # The process was never asked to run the script.
            return {"error": self.trouble}
        with contextlib.suppress(OSError):
            answer: HookAnswer = json.loads(self.file.read_text())
            self.script.unlink(missing_ok=True)
            return answer
        if not is_over:
            return None
        if self._action == "attach":
            self.script.write_text("")  # If the process reads it later, it must not attach. A late detach is harmless.
        return {"silent": True}
