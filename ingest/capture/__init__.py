"""Recording a training loop from inside: the loop as it runs, under the profiler, and as it runs again, in one file.

Needs the standard library and the torch that is there; the rest of Sawtooth is not loaded.
"""
