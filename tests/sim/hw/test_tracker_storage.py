"""Storage of the Tracker, and the width of the fields in which a request names ports."""

import numpy as np

from sim.hw.lsu_record import LSU
from sim.hw.request import REQUEST
from sim.hw.tracker import tracker_bits
from sim.presets import load_preset


def test_storage_follows_from_the_fields():
    """The paper's Tracker: 256 entries of 8 wavefronts; it says 19 KB."""
    spec = load_preset("t3_2024").machine.tracker
    counter = spec.address_bits + spec.counter_bits + 3 + 1  # one of 8 wavefronts, valid
    assert tracker_bits(spec) == 256 * (8 * counter + 16 - 5)  # 32 sets know 5 bits of the workgroup
    assert 0.9 * 19_000 < tracker_bits(spec) / 8 < 1.1 * 19 * 1024
    whole = load_preset("t3_2024", ["tracker.ways=256"]).machine.tracker
    assert tracker_bits(whole) == 256 * (8 * counter + 16)


def test_the_record_has_room_for_a_request_of_any_port():
    assert LSU["links"].shape[0] == 63 and LSU["links"].base == REQUEST["link"] == np.int8
