"""Scenarios: a sub-layer in several configurations, computed from its runs."""
