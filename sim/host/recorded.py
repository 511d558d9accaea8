"""What a GPU records over time, besides its counters: time series, timeline, and what its warps wait for."""

from dataclasses import dataclass, field

import numpy as np

from sim.hw.spans import SPAN
from sim.machine.stalls import STALL


@dataclass
class Recorded:
    """The records of one GPU. Everything is empty without a time series.

    Attributes:
        series: name -> i8 [time], one value per interval: the increase in the interval, or a level at its end.
        channel_bytes: i8 [time, channels]: bytes that crossed the bus of each DRAM channel in the interval.
        spans: SPAN, workgroups and transfers of DMA engines.
        stalls: STALL (`sim.machine.stalls`), samples of what warps wait for.
        triggers: i8 [tiles, 3]: tile, when it was complete (ps), local chunk.
    """

    series: dict[str, np.ndarray] = field(default_factory=dict)
    channel_bytes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    spans: np.ndarray = field(default_factory=lambda: np.zeros(0, SPAN))
    stalls: np.ndarray = field(default_factory=lambda: np.zeros(0, STALL))
    triggers: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
