"""One module per command of the command line; ``app.cli`` registers them."""
