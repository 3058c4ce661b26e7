"""One module per command of the command line; ``sawtooth.app.cli`` registers them."""
