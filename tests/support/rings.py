"""Collectives of NCCL whose receivers load over the links."""

from sim.collective.library import choose
from sim.presets import load_preset
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun

PULLS = "collective.pulls=true"


def ring(kind, gpus, *overrides, data_bytes=60_000, channels=3, machine="a100_80g"):
    """The run of a collective with protocol Simple."""
    choice = choose("nccl_a100", kind, gpus, data_bytes, protocol="simple", channels=channels)
    preset = library_preset(load_preset(machine, (PULLS, *overrides)), choice)
    return LibraryRun(preset=preset, kind=kind, gpus=gpus, data_bytes=data_bytes, choice=choice)
