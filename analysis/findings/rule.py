"""Findings and the rules that yield them.

A rule is one module of ``sawtooth.analysis.findings.rules``. Its docstring has the headings *What it checks*, *Why it costs time*, *What to do*, *When it
is wrong* and *References*; it holds ``RULE``, a ``Rule``. A rule whose data is missing is reported as not checked, never as fine.
"""

from __future__ import annotations
