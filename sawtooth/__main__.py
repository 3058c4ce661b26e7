"""Command line of ``python -m sawtooth``."""

from sawtooth.app.cli import main

if __name__ == "__main__":
    main()
