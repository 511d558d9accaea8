"""The host side of a simulated machine: one GPU, GPUs joined by links, the trace window, checkpoints."""
