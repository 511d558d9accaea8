"""Comparisons: other simulators, hardware counters, libraries."""
