"""The script with which `sawtooth serve` and `demo` run Streamlit; Ctrl-C prints "Stopped.".

Streamlit's own command would print "Aborted!". This file is a script, because it must run before a checkout's packages are on the
path.
"""

import atexit
import os
import sys

from click.exceptions import Abort
from streamlit.web.cli import main

STOPPED = 130  # The status that shells report for a process that Ctrl-C ended.

if __name__ == "__main__":
    try:
        main(["run", *sys.argv[1:]], prog_name="streamlit", standalone_mode=False)
    except Abort:
        print("Stopped.", file=sys.stderr)
        # Python's normal exit would print leftovers of C++ libraries: "nanobind: leaked 28 instances!".
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STOPPED)
