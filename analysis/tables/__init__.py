"""The tables behind the screens, per step: kernels, operators, modules, efficiency, memory, waits, and the timeline of a view."""
