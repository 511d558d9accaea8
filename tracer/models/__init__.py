"""Transformers as data: a name or a config.json -> the kernels and collectives that a GPU runs."""
