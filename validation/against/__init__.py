"""Comparisons with other simulators, hardware counters and libraries."""
