"""Tables of pages: kernels, operators, modules, memory and waits per step, and the timeline."""
