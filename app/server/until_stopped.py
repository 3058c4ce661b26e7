"""Streamlit as `sawtooth serve` and `demo` run it: stopped by Ctrl-C it ends with one sentence, where Streamlit's own command says "Aborted!".

A script and no module of the package: it must run where a checkout's packages are not on the path yet.
"""

import atexit
import os
import sys

from click.exceptions import Abort
from streamlit.web.cli import main

STOPPED = 130  # as shells report a process that Ctrl-C ended

if __name__ == "__main__":
    try:
        main(["run", *sys.argv[1:]], prog_name="streamlit", standalone_mode=False)
    except Abort:
        print("Stopped.", file=sys.stderr)
        atexit._run_exitfuncs()  # the end of Python itself would print what libraries of C++ did not let go of: "nanobind: leaked 28 instances!"
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STOPPED)
