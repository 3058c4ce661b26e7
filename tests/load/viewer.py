"""Simulate a viewer without a browser, over Streamlit's WebSocket protocol.

It opens screens, filters, and reads the answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.support.servers import LOGGED_IN

LONGEST_SECONDS = 60.0  # A rerun that takes longer counts as an error.


class LoadError(Exception):
    """A rerun that failed."""


@dataclass
class Page:
    """What one rerun showed: widget ids by label, and a fingerprint of every element with data."""

    seconds: float
    widgets: dict[str, str] = field(default_factory=dict)
    figures: set[str] = field(default_factory=set)


class Viewer:
    """One open page of a simulated viewer.

    ``show`` reruns it as a browser does when somebody opens a screen or types into a filter.
    """

    def __init__(self, url: str) -> None:
        self._url = url.replace("http", "ws", 1) + "/_stcore/stream"
        self._socket: Any = None

    async def open(self) -> Viewer:
        self._socket = await websockets.connect(
            self._url, subprotocols=["streamlit"], additional_headers=LOGGED_IN, max_size=None, open_timeout=60
        )
        return self

    async def close(self) -> None:
        await self._socket.close()

    async def show(self, screen: str, query: str, texts: dict[str, str] | None = None) -> Page:
        """Open ``screen`` with the query, ``texts`` typed into widgets (by their ids); wait until it is whole."""
        message = BackMsg()
        message.rerun_script.page_name = screen
        message.rerun_script.query_string = query
        message.rerun_script.context_info.color_scheme = "light"
        message.rerun_script.context_info.url = "http://localhost/"
        for widget, text in (texts or {}).items():
            state = message.rerun_script.widget_states.widgets.add()
            state.id, state.string_value = widget, text
        page, started = Page(0.0), time.perf_counter()
        await self._socket.send(message.SerializeToString())
        while True:
            content = await _within(self._socket.recv(), started)
            forward = ForwardMsg()
            forward.ParseFromString(content)
            kind = forward.WhichOneof("type")
            if kind == "delta":
                _take(forward, page)
            elif kind == "script_finished":
                if forward.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                    page.seconds = time.perf_counter() - started
                    return page
                if forward.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                    raise LoadError("compile error")


async def _within(waiting: Any, started: float) -> Any:
    try:
        return await asyncio.wait_for(waiting, max(0.1, LONGEST_SECONDS - (time.perf_counter() - started)))
    except TimeoutError:
        raise LoadError("no answer") from None


def _take(forward: ForwardMsg, page: Page) -> None:
    if forward.delta.WhichOneof("type") != "new_element":
        return
    element = forward.delta.new_element
    kind = element.WhichOneof("type")
    if kind == "html":
        page.figures.add(hashlib.sha256(element.html.body.encode()).hexdigest())
    elif kind == "dataframe":
        table = (
            element.dataframe
        )  # The page gets only the first rows of a long table. The other rows follow when the viewer scrolls to them.
        page.figures.add(hashlib.sha256(table.arrow_data.data or table.lazy_data.initial_chunk).hexdigest())
    elif kind == "plotly_chart":
        page.figures.add(hashlib.sha256(element.plotly_chart.spec.encode()).hexdigest())
    elif kind in ("text_input", "selectbox"):
        widget = getattr(element, kind)
        page.widgets[widget.label] = widget.id
    elif kind == "exception":
        raise LoadError(f"exception: {element.exception.message[:200]}")
