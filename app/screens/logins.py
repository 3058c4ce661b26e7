"""Logins: which browsers are logged in, how another gets in, and how one gets out."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import streamlit as st

from sawtooth.app import format as fmt
from sawtooth.app.page import cards
from sawtooth.app.server.login import session_cookie_of
from sawtooth.app.server.sessions import Listed, Sessions, sessions_of
from sawtooth.app.server.start import link_to
from sawtooth.app.settings import settings


def main() -> None:
    """Show the page."""
    token = settings().token
    if token is None:
        cards.headline(
            "Nobody logs in here.", "The server was started with --no-token: whoever reaches it sees and changes everything."
        )
        return
    sessions = sessions_of(settings().data)
    own = sessions.id_of(st.context.cookies.get(session_cookie_of(token), ""))
    here = sessions.all()
    cards.headline(
        f"{fmt.many(len(here), 'browser')} logged in",
        "A login ends here, or after 30 days without use. Everybody who is logged in sees and changes the same runs.",
    )
    for listed in here:
        _login(listed, sessions, own=listed.id == own)
    _let_in()


def _login(listed: Listed, sessions: Sessions, *, own: bool) -> None:
    session = listed.session
    user = f", user {session.user} of this machine" if session.user is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", border=True):
        with st.container():
            cards.paragraph(f"{'This browser' if own else 'From ' + (session.address or 'an unknown address')}{user}")
            cards.small(f"Since {_day(session.created)} by {session.how}, last used {_day(listed.seen)}. {session.agent}")
        if st.button("Log out", key=f"end-{listed.id}"):
            sessions.end(listed.id)
            st.rerun()


def _let_in() -> None:
    cards.title("Let another browser in")
    cards.small(
        "A link logs one browser in, once, within a day. Send it only to whom you mean: it opens for whoever comes first."
    )
    if st.button("Make a link", icon=":material/add_link:"):
        parts = urlsplit(st.context.url or "http://localhost:8501/")
        st.code(link_to(settings().data, f"{parts.scheme}://{parts.netloc}/"), language=None, wrap_lines=True)


def _day(seconds: float) -> str:
    return time.strftime("%d %b %H:%M UTC", time.gmtime(seconds))


main()
