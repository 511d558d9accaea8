"""Tiled GEMMs as kernel traces."""
