"""The tables of the pages, per step: kernels, operators, modules, memory, waits, and the timeline."""
