"""MCA chooses its limit once, by how full the queues were in the first stage; only channels with that arbiter obey."""

from typing import NamedTuple

import numpy as np
import pytest

from sim.hw.hbm.channel import make_channels
from sim.hw.mca import choose_limit, make_mca, mca_facts, stage_ended, watch_first_stage
from sim.hw.request import NEVER, STREAMS, Stream
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset

FROM_PS, END_PS = 4000, 10_000


class Parts(NamedTuple):
    """What `choose_limit` sees of a node."""

    mca: np.ndarray
    channels: np.ndarray
    channel_wake_ps: np.ndarray


def parts(arbiter="mca", entries=0):
    """Two channels; the first holds 2 x `entries` entries since the stage began, the second none."""
    machine = small_preset(f"hbm.arbiter={arbiter}", "hbm.queue_entries=64").machine
    fifos = np.arange(2 * STREAMS).reshape(2, STREAMS)
    none = np.array([-1, -1])
    channels = make_channels(machine, fifos, np.array([8, 9]), (np.full_like(fifos, -1), none, none))
    channels["accounted_ps"] = FROM_PS
    channels["queued_stream"][0, [Stream.COMPUTE_READ, Stream.COMM_WRITE]] = entries
    found = Parts(make_mca(machine), channels, np.full(2, NEVER, np.int64))
    watch_first_stage(found.mca, 4, FROM_PS)
    return found


def close(found, finished=4):
    """So many workgroups of queue 0 have finished; the limit is chosen when it is due."""
    stage_ended(kernel_view(found.mca)[0], finished, END_PS)
    if found.mca[0]["choose_ps"] < NEVER:
        assert found.mca[0]["choose_ps"] == END_PS
        choose_limit(Parts(*map(kernel_view, found)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entries", "limit"), [(64, 5), (32, 5), (31, 10), (16, 10), (15, 30), (8, 30), (7, None), (0, None)]
)
def test_the_fuller_the_queues_the_stricter_the_limit(entries, limit):
    found = parts(entries=entries)
    close(found)
    assert mca_facts(found.mca, found.channels) == {"mca_threshold": limit, "mca_occupancy": float(entries)}
    assert set(found.channels["mca"]["limit"]) == {limit or NEVER}
    assert set(found.channel_wake_ps) == {END_PS}


def test_nothing_is_chosen_before_the_stage_is_over_nor_twice():
    found = parts(entries=64)
    close(found, finished=3)
    assert mca_facts(found.mca, found.channels)["mca_threshold"] is None and set(found.channel_wake_ps) == {NEVER}
    close(found)
    found.channels["queued_stream"] = 0
    found.channels["occupancy"] = 0
    close(found, finished=8)
    assert mca_facts(found.mca, found.channels)["mca_threshold"] == 5


def test_other_arbiters_keep_their_limits():
    found = parts("mca_fixed", entries=64)
    close(found)
    assert mca_facts(found.mca, found.channels)["mca_threshold"] == 10
    assert set(found.channels["mca"]["limit"]) == {10} and set(found.channel_wake_ps) == {NEVER}
