"""Benchmarks of the simulator's speed."""
