"""`sawtooth run`: any training command recorded without a line of it changed. Launched here, hooked inside, shown as it goes, cut into runs."""
