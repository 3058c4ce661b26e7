"""Several ranks of one job: whose clock is whose, which collectives belong together, what the job's step takes, and who makes it longer."""
