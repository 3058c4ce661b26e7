"""What another batch size gives: the step by the kernel model and a replay, memory by what grows."""
