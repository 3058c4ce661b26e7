"""Sampled quantities of GPUs and their host, one row per quantity, and the reasons for lower clocks.

A row has the column of table ``samples`` and its unit, the possible values, its label, its panel on the charts, and its name
and unit in every source. The sampler, the readers, the store's schema, the analysis and the charts all use these rows. A new
quantity is one row. If NVML has a separate call for it, that call is added in ``sawtooth.ingest.sampler.nvml.fields``. The
sampler runs on the host of a training, so this package uses the standard library only.
"""
