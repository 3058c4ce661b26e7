"""Proposals: an imported file describes an existing run differently, and the viewer decides."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from sawtooth.app.format import clean
from sawtooth.app.page import cards, frame
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.proposals import Proposal, accept, dismiss, list_changes, proposal_for
from sawtooth.ingest.schema import DataFolder

MAX_SHOWN = 5  # Proposals shown at a time. The next one appears when the viewer has decided on one.
CELL_LENGTH = 120


def proposals(manifests: list[Manifest]) -> None:
    """Show the proposals for the listed runs; a run changes only if the viewer presses the button."""
    waiting = ((run, proposal) for run in manifests if (proposal := proposal_for(frame.data_folder(), run.id)) is not None)
    for _, (run, proposal) in zip(range(MAX_SHOWN), waiting, strict=False):
        _proposal(run, proposal)


def _proposal(run: Manifest, proposal: Proposal) -> None:
    with st.container(border=True):
        cards.title(f"{clean(proposal.bundle_name, 60)} describes {clean(run.name, 60)} differently")
        cards.small("The run has not changed. Its numbers change only if you accept the description in the file.")
        rows = [[clean(text, CELL_LENGTH) for text in (d.what, d.before, d.after)] for d in list_changes(run, proposal)]
        cards.table(("", "Here", "In the file"), rows, "What would change")
        with st.container(horizontal=True):
            if st.button("Accept", key=f"accept-{run.id}"):
                _decide(accept, run)
            if st.button("Dismiss", key=f"dismiss-proposal-{run.id}", type="tertiary"):
                _decide(dismiss, run)


def _decide(decision: Callable[[DataFolder, str], object], run: Manifest) -> None:
    try:
        decision(frame.data_folder(), run.id)
    except SawtoothError as error:
        cards.problem("Not changed", str(error))
    else:
        st.rerun()
