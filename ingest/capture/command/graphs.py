"""Optimizer steps inside CUDA graphs.

The optimizer is called once, during the graph's capture. Each replay of the graph is a step. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from ..in_process.shared import process_wide, watch

POLL_PERIOD_S = 0.01  # Pause between two checks of whether a capture has ended.


class Graphs:
    """The CUDA graphs of this process that contain a step; ``on_step`` is called after each replay."""

    def __init__(self) -> None:
        self.capturing = False
        self.on_step: Callable[[Any], None] | None = None
        self._optimizer: Any = None  # The first optimizer that stepped in the graph that is being captured.
        self._optimizers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # The optimizers, by graph.
        self._begin_lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: setattr(self, "_begin_lock", threading.Lock()))

    @contextlib.contextmanager
    def none_captured(self) -> Iterator[None]:
        """Wait for the end of a running capture, and let no other capture begin inside this context.

        The caller waits for the GPU inside this context, which would break a capture in another thread.
        """
        self._begin_lock.acquire()
        while self.capturing:
            self._begin_lock.release()
            time.sleep(POLL_PERIOD_S)
            self._begin_lock.acquire()
        try:
            yield
        finally:
            self._begin_lock.release()

    def captures(self, optimizer: Any) -> bool:
        """Return whether a graph is being captured; if so, note that ``optimizer`` stepped in it."""
        if self.capturing:
            self._optimizer = self._optimizer or optimizer
        return self.capturing

    def watch(self, module: Any) -> Callable[[], None]:
        """Follow captures and replays until the returned function is called.

        ``module`` is torch.cuda.graphs.
        """

        def noting_begin(begin: Callable[..., Any], _: list[Graphs]) -> Callable[..., Any]:
            def begin_and_note(graph: Any, *arguments: Any, **named: Any) -> Any:
                with self._begin_lock:
                    result = begin(graph, *arguments, **named)  # After an error here, no capture has begun.
                    self.capturing, self._optimizer = True, None
                return result

            return begin_and_note

        def noting_end(end: Callable[[Any], Any], _: list[Graphs]) -> Callable[[Any], Any]:
            def note_and_end(graph: Any) -> Any:
                self.capturing = False
                if self._optimizer is not None:
                    self._optimizers[graph], self._optimizer = self._optimizer, None
                return end(graph)

            return note_and_end

        def noting_replay(replay: Callable[[Any], Any], _: list[Graphs]) -> Callable[[Any], Any]:
            def replay_and_note(graph: Any) -> Any:
                result = replay(graph)
                if self.on_step is not None and (optimizer := self._optimizers.get(graph)) is not None:
                    self.on_step(optimizer)
                return result

            return replay_and_note

        with contextlib.ExitStack() as stack:
            patches = (("capture_begin", noting_begin), ("capture_end", noting_end), ("replay", noting_replay))
            for name, patch in patches:
                stack.callback(watch(module.CUDAGraph, name, self, patch))
            return stack.pop_all().close


GRAPHS = process_wide("graphs", Graphs)  # For `sawtooth run`.
