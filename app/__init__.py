"""The Streamlit app, its HTTP routes and the command line."""
