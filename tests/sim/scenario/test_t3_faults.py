"""Faults put into runs of many GPUs: the ledger finds every lost, doubled, early or misplaced update, or they stop."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sim.machine.deadlock import DeadlockError
from tests.support.t3_cases import FOUR_WARPS, TILE, T3Case, clusters


def run_with_fault(change, at_round=None, part="t3", case=None):
    """The result of a run in which `change(cluster)` was made before it, or after a round in which something flies."""
    case = case or T3Case(96, 96, 32, 3)

    def spoil(cluster, _):
        if at_round is None:
            change(cluster)
            return
        done = []

        def watched(advance, progress):
            status = advance(progress)
            flying = np.flatnonzero(cluster.wires["sent"] > cluster.wires["taken"])
            if len(flying) and not done:
                done.append(flying[0])
                change(cluster.wires[flying[0]])
            return status

        for gpu in cluster.gpus:
            gpu.advance = partial(watched, gpu.advance)

    with clusters(spoil):
        return case._run(part)


def drop(wire):
    wire["sent"] -= 1


def double(wire):
    wire["packet"][wire["sent"] % 4096] = wire["packet"][(wire["sent"] - 1) % 4096]
    wire["sent"] += 1


def swap_contributors(wire):
    wire["packet"]["contributors"][(wire["sent"] - 1) % 4096] = 0b100


def halve(wire):
    wire["packet"]["sectors"][(wire["sent"] - 1) % 4096] &= 0b0101


def swap_wavefronts(wire):
    """Stores of a wavefront that would count for another."""
    wire["packet"]["wavefront"][(wire["sent"] - 1) % 4096] ^= 1


def swap_lines(wire):
    """The right number of bytes, in the wrong place."""
    wire["packet"]["line"][(wire["sent"] - 1) % 4096] = wire["packet"]["line"][(wire["sent"] - 2) % 4096]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (drop, "arrived bytes"),
        (double, "arrived bytes"),
        (halve, "arrived bytes"),
        (swap_lines, "arrived sectors"),
        (swap_contributors, "contributors"),
    ],
)
@pytest.mark.parametrize("part", ["t3", "rs_nmc"])
def test_a_fault_on_a_link_is_found(part, fault, words):
    try:
        result = run_with_fault(fault, "first", part)
    except DeadlockError:
        assert part == "rs_nmc" and fault in (drop, halve)  # the next step waits for ever
        return
    assert not result.exactly_once and any(words in one for one in result.wrong), result.wrong


@pytest.mark.parametrize("granularity", ["workgroup", "wavefront"])
def test_an_update_credited_to_another_wavefront_is_found(granularity):
    settings_ = (f"tracker.granularity={granularity}",)
    case = T3Case(128, 128, 16, 2, replace(FOUR_WARPS, warps_n=1), settings=settings_)
    result = run_with_fault(swap_wavefronts, "first", case=case)
    assert any("wavefronts" in one for one in result.wrong) and any("triggers" in one for one in result.wrong)


def trigger_early(cluster):
    """Every DMA tile goes when its own stores are there."""
    for gpu in cluster.gpus:
        wavefronts = gpu.node.output.wavefronts
        wavefronts["threshold_bytes"] = np.where(wavefronts["threshold_bytes"] > 0, wavefronts["bytes"], 0)


def never_trigger(cluster):
    cluster.gpus[1].node.output.wavefronts["threshold_bytes"] += 32


def send_a_tile_twice(cluster):
    """GPU 0 keeps its own stores of a tile and sends them, too: its neighbour gets the sum of a stranger."""
    cluster.gpus[0].node.output.sends["port"] = 1


@pytest.mark.parametrize("granularity", ["workgroup", "wavefront"])
def test_a_tile_that_is_sent_too_early_is_found(granularity):
    case = T3Case(96, 96, 32, 3, replace(TILE, warps_m=2), settings=(f"tracker.granularity={granularity}",))
    result = run_with_fault(trigger_early, case=case)
    assert not result.exactly_once
    assert any("contributors" in one or "sent on before" in one for one in result.wrong), result.wrong


def test_a_tile_that_is_never_complete_is_found():
    result = run_with_fault(never_trigger)
    assert any("GPU 1: triggers" in one for one in result.wrong), result.wrong


def test_a_tile_that_goes_the_wrong_way_is_found():
    result = run_with_fault(send_a_tile_twice)
    assert not result.exactly_once and any("arrived bytes" in one for one in result.wrong), result.wrong


def test_a_tracker_whose_tiles_never_complete_is_a_deadlock_that_names_it():
    case = T3Case(96, 96, 32, 3, settings=("tracker.entries=1", "tracker.ways=1"))
    with pytest.raises(DeadlockError, match=r"collective, GPU \d: nothing can move .* for the Tracker [1-9]"):
        run_with_fault(never_trigger, case=case)


@pytest.mark.parametrize("explicit", [True, False])
def test_a_collective_that_waits_for_what_nobody_sends_is_a_deadlock(explicit):
    def never_open(cluster):
        cluster.gpus[0].node.output.gates["needed_bytes"] += 32

    case = T3Case(96, 96, 32, 3, explicit=explicit)
    with pytest.raises(DeadlockError, match=r"GPU 0: nothing can move at \d+ ps with \d+ workgroups left"):
        run_with_fault(never_open, part="rs", case=case)
