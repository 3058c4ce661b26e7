"""What people see: the Streamlit app, its HTTP routes and the command line."""
