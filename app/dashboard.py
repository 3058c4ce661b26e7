"""The script that Streamlit runs for every page view; see ``sawtooth.app.page.navigation``."""

import streamlit as st

from sawtooth.app.page import cards, navigation

st.set_page_config(page_title="Sawtooth", page_icon=cards.ICON, layout="wide", initial_sidebar_state=230)
page = st.navigation(navigation.pages(), position="hidden")
st.set_page_config(page_title=f"{page.title} · Sawtooth")  # A run's screens and Compare replace this title with their answer.
cards.style()
navigation.show(page)
