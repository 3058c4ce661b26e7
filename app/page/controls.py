"""Controls for choices and searches, stored in the address so that a link restores the same view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T", bound=str)


def choice(label: str, options: Mapping[T, str], key: str, *, label_shown: bool = True) -> T:
    """Let the viewer choose one of ``options`` (value -> text); the first option is the default.

    Screen readers read ``label`` even if it is not shown.
    """
    chosen: T = st.segmented_control(
        label,
        list(options),
        format_func=options.__getitem__,
        key=key,
        default=next(iter(options)),
        required=True,
        bind="query-params",
        label_visibility="visible" if label_shown else "collapsed",
    )
    return chosen


def search(key: str, placeholder: str, width: int = 280) -> str | None:
    """Let the viewer type a search text; ``width`` is in pixels."""
    return st.text_input("Search", key=key, placeholder=placeholder, bind="query-params", width=width)


def fold(label: str, key: str, *, icon: str | None = None, opened: bool = False) -> Any:
    """Show a section that the viewer can open; return its place if it is open, else None.

    The content of a closed section is not computed. The address contains whether it is open, as the parameter ``key``.
    """
    section = st.expander(label, expanded=opened, icon=icon, key=key, bind="query-params")
    return section if section.open else None
