"""What is sampled of GPUs and of their host, one row a quantity, with everything that is said about it; and why clocks are held down.

A row holds the column of table ``samples`` and its unit, the values that are possible, its label, its panel on the charts, and its name
and unit in every source. The sampler, the readers, the store's schema, the analysis and the charts all take it from here: a new quantity
is a row (and, where NVML has a call of its own for it, that call in ``sawtooth.ingest.sampler.nvml.fields``). The sampler runs beside a
training job, so this room uses the standard library only.
"""
