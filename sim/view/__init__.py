"""Figures, tables and timelines of results."""
