"""Kernel resources and line tables out of CUDA and AMD binaries."""
