"""What feeds a simulated machine: one GPU, GPUs joined by links, the window on a trace, checkpoints."""
