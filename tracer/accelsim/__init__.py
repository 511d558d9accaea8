"""Accel-Sim traces: read tracer versions 1 to 6, write version 5."""
