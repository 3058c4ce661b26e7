"""Sampled quantities of GPUs and their host, one row per quantity, and the reasons for lower clocks.

A row has the column of the table ``samples`` and its unit, the possible values, a label, the panel on the charts, and the name and unit in
every source. The sampler, the readers, the store's schema, the analysis and the charts use these rows, so a new quantity is one new row. A
separate call of NVML is added in ``sawtooth.ingest.sampler.nvml.fields``. Standard library only, because the sampler runs on the host of a
training.
"""
