"""Kernel resources and line tables from CUDA and AMD binaries."""
