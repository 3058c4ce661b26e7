"""The user interfaces: the Streamlit app, its HTTP routes and the command line."""
