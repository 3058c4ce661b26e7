"""``python -m sawtooth``: the command line."""

from sawtooth.app.cli import main

if __name__ == "__main__":
    main()
