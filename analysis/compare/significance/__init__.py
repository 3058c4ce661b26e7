"""Whether a change is more than noise: each run's step time with its interval, the interval of the change, and the words for it."""
