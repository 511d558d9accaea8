"""Machines as TOML files. Every value has a kind of evidence and a source.

    [hbm]
    channels = { value = 32, kind = "standard", source = "JESD235: 4 stacks of 8 channels" }

`extends = "v100"` takes the values that a file does not give from another preset. Enum members have lower-case names.

A preset borrows what it does not say about links, Tracker, DMA engines, MCA and collectives from the machine of the T3
paper. Such a value has the kind `borrowed`.

    preset = load_preset("t3_2024", overrides=["hbm.queue_entries=32"])
    preset.machine.hbm.queue_entries, preset.sources["hbm.channels"].kind
"""

from sim.presets.load import load_preset, preset_from_dict, presets
from sim.presets.measured import measured
from sim.presets.preset import Preset, Source, assumed, borrowed

__all__ = ["Preset", "Source", "assumed", "borrowed", "load_preset", "measured", "preset_from_dict", "presets"]
