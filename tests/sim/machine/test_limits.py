"""A machine larger than the unit records is refused before anything is allocated; every preset fits."""

import pytest

from sim.machine.build import build
from sim.machine.limits import LIMITS, check_limits
from sim.presets import load_preset, presets
from traces.errors import UserError


@pytest.mark.parametrize("name", presets())
def test_presets_fit(name):
    check_limits(load_preset(name).machine)


@pytest.mark.parametrize("field", ["l1.ways", "l1.mshrs", "cu.loads_outstanding", "cu.workgroups"])
def test_larger_than_the_record_is_refused(field):
    value = LIMITS[field] * 2
    machine = load_preset("v100", [f"{field}={value}"]).machine
    with pytest.raises(UserError, match=f"{field}: found {value}, allowed is at most {LIMITS[field]}"):
        build(machine)


def test_more_tracker_sets_than_the_record_holds_are_refused():
    check_limits(load_preset("t3_2024", ["tracker.entries=8192", "tracker.ways=2"]).machine)
    with pytest.raises(UserError, match=r"tracker.entries: found 8194, allowed is at most 4096 x tracker.ways = 8192"):
        build(load_preset("t3_2024", ["tracker.entries=8194", "tracker.ways=2"]).machine)


def test_more_credits_than_a_wire_holds_are_refused():
    with pytest.raises(UserError, match=r"link\.credits: found 4097, allowed is at most 4096"):
        build(load_preset("t3_2024", ["link.credits=4097"]).machine)
