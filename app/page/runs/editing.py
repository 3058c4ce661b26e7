"""The dialog of the Runs page that renames, tags, annotates or deletes a run."""

from __future__ import annotations

from typing import Any

import msgspec
import streamlit as st

from sawtooth.analysis.result_cache import remove_cached
from sawtooth.app.format import clean, markdown
from sawtooth.app.library import library
from sawtooth.app.page import cards, frame
from sawtooth.app.page.runs import attach_telemetry
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.manifests import delete_run, edit_run

NAME_LENGTH = 120
NOTES_LENGTH = 4000
MAX_TAGS = 12


@st.dialog("Edit this run")
def edit(shown: Manifest) -> None:
    """Show the dialog for a run.

    ``shown`` is the run's state at the time when the dialog opened. It stays the same until the dialog closes.
    """
    with st.form(f"edit-{shown.id}", border=False):
        name = st.text_input("Name", shown.name, max_chars=NAME_LENGTH)
        tags = st.text_input("Tags", _tags(shown), help="Separated by commas.")
        notes = st.text_area("Notes", shown.notes, max_chars=NOTES_LENGTH)
        if st.form_submit_button("Save", type="primary"):
            _save(shown, name, tags, notes)
    manifest = frame.data_folder().read_manifest(shown.id)
    if manifest.traces:
        with st.expander("Attach telemetry"):
            attach_telemetry.choose(manifest)
    with st.expander("Delete this run"):
        deletion(manifest)


def _save(shown: Manifest, name: str, tags: str, notes: str) -> None:
    try:
        edit_run(frame.data_folder(), shown.id, lambda run: edited(run, shown, name, tags, notes))
    except SawtoothError as error:
        cards.problem("Not saved", str(error))
    else:
        st.rerun()


def deletion(manifest: Manifest) -> None:
    """Offer to delete a run after a confirmation."""
    cards.small("This removes the run's recordings and source files from this server. Links to the run then no longer work.")
    sure = st.checkbox(f"Yes, delete {markdown(manifest.name, 60)} for good", key=f"sure-{manifest.id}")
    if st.button("Delete", key=f"delete-{manifest.id}", disabled=not sure):
        _delete(manifest)


def edited(manifest: Manifest, shown: Manifest, name: str, tags: str, notes: str) -> Manifest:
    """Return ``manifest`` with the viewer's input, cleaned; an empty name leaves the name unchanged.

    A field that the viewer did not change keeps the value in ``manifest``, because another viewer may have changed it.
    """
    typed: dict[str, Any] = {}
    if name != shown.name:
        typed["name"] = clean(name, NAME_LENGTH).strip() or manifest.name
    if tags != _tags(shown):
        cleaned = [clean(tag, 40).strip() for tag in tags.split(",")]
        typed["tags"] = list(dict.fromkeys(tag for tag in cleaned if tag))[:MAX_TAGS]
    if notes != shown.notes:
        typed["notes"] = notes[:NOTES_LENGTH]
    return msgspec.structs.replace(manifest, **typed)


def _tags(manifest: Manifest) -> str:
    return ", ".join(manifest.tags)


def _delete(manifest: Manifest) -> None:
    try:
        delete_run(frame.data_folder(), manifest.id)
    except SawtoothError as error:
        cards.problem("Not deleted", str(error))
        return
    remove_cached(frame.data_folder(), manifest.id)
    for ref in manifest.recordings:
        if not frame.data_folder().recording_file(ref.id).exists():
            library().forget(ref.id)
    st.session_state.pop(f"pick-{manifest.id}", None)
    if st.query_params.get("run") == manifest.id:
        del st.query_params["run"]
    st.rerun()
