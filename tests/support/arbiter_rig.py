"""A channel alone, for an arbiter to choose from."""

import numpy as np

from sim.hw.hbm.channel import make_hbm_channels
from sim.hw.request import STREAMS
from tests.support.hbm_rig import bench_spec


def channel_with(arbiter, heads_ps, last_stream=-1):
    spec = bench_spec(arbiter=arbiter)
    channel = make_hbm_channels(spec, np.arange(STREAMS)[None], np.array([STREAMS])).view(np.recarray)[0]
    channel.head_ps[:] = heads_ps
    channel.last_stream = last_stream
    return channel
