"""Accel-Sim traces: read tracer versions 1 to 6, write 5 and 6."""
