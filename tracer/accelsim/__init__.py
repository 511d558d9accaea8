"""Accel-Sim traces: read every tracer version seen, write version 5."""
