"""Runs: one simulation each, its description and its result."""
