"""Profiles of real programs: which kernels and collectives ran, with their shapes and measured times."""
