"""The trace window: how far the host reads ahead changes nothing, and what it refuses."""

from types import SimpleNamespace

import numpy as np
import pytest

import sim.host.window
from sim.host.window import check_bulk
from sim.run.one_gpu import simulate
from tests.support.programs import kernel, load, random_kernel, small_preset, store, workgroup
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.schema import Bulk, Kind


@pytest.mark.parametrize("jitter_ps", [0, 20_000])
@pytest.mark.parametrize("seed", range(3))
def test_the_outcome_does_not_depend_on_how_far_the_host_reads_ahead(seed, jitter_ps, monkeypatch):
    one = random_kernel(seed, workgroups=60, events=3)
    machine = small_preset(f"dispatch.jitter_ps={jitter_ps}", "cu.workgroups=2")
    found = []
    for ahead in (1, 3, 64):
        monkeypatch.setattr(sim.host.window, "READ_AHEAD", ahead)
        result = simulate(CommandSequence([one]), machine).kernels[0]
        found.append((result.start_ps, result.end_ps, result.totals))
    assert found[0] == found[1] == found[2]


def test_a_larger_workgroup_widens_the_window():
    groups = [[[store(1024 * g + 128 * k) for k in range(1 + g % 7)]] for g in range(200)]
    totals = simulate(CommandSequence([kernel(groups)]), small_preset()).kernels[0].totals
    assert totals["hbm.write_columns"] == 4 * sum(1 + g % 7 for g in range(200))


def test_workgroups_without_warps_are_passed_over():
    empty = workgroup(0, [])
    source = kernel([empty, workgroup(1, [[store(0)]]), workgroup(2, [])], warps=1)
    assert simulate(CommandSequence([source]), small_preset()).kernels[0].totals["cu.workgroups"] == 1


def without_exit():
    item = workgroup(4, [[load(0)], [load(0)]])
    item.events["kind"][1] = Kind.WAIT
    return kernel([*([[load(0)]] for _ in range(4)), item])


def no_event():
    item = workgroup(4, [[load(0)]])
    return kernel([*([[load(0)]] for _ in range(4)), item._replace(first_event=np.array([0, 0]))])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (without_exit(), "workgroup 4, warp 0: kind: found 7, allowed 8: every warp must end with an EXIT"),
        (no_event(), "workgroup 4, warp 0: found no event, allowed 8: every warp must end with an EXIT"),
        (kernel([workgroup(0, [[load(0)]], [3])], warps=2), "found warp 3, but the kernel has 2, allowed 0 to 1"),
        (kernel([[[load(0)]]], lanes=64), "warps of 64 lanes"),
        (kernel([[[load(0)]]], shared_bytes=1 << 20), "cu.shared_bytes"),
        (kernel([[[load(0)]]], warps=33), "workgroup of 1056 threads"),
        (kernel([[[load(0)]]], warps=32, registers=255), "cu.registers_bytes"),
    ],
)
def test_what_does_not_fit_is_refused(source, words):
    with pytest.raises(UserError, match=words):
        simulate(CommandSequence([source]), small_preset())


def test_a_shared_program_may_not_move_out_of_the_address_space():
    """The second workgroup has the events of the first one; only its addresses were not checked yet."""
    source = kernel([[[load(0)]], [[load((1 << 63) - 64)]]])
    with pytest.raises(UserError, match="workgroup 1"):
        simulate(CommandSequence([source]), small_preset())


@pytest.mark.parametrize(
    ("space", "routed", "stay", "stores", "refused"),
    [
        (Bulk.STORE, 1, 1, 1, True),
        (Bulk.REDUCE, 1, 0, 2, True),
        (Bulk.STORE, 1, 1, 0, False),
        (Bulk.STORE, 1, 0, 1, False),
        (Bulk.STORE, 0, 1, 1, False),
        (Bulk.LOAD, 1, 1, 1, False),
    ],
)
def test_bulk_stores_go_to_one_gpu(space, routed, stay, stores, refused):
    item = workgroup(3, [[load(0)]])
    item.events["kind"][0], item.events["space"][0] = Kind.BULK, space
    tiles = np.array([(routed, stay, stores)], [("routed", "i8"), ("stay", "i8"), ("stores", "i8")])
    node = SimpleNamespace(bulk_units=[0], output=SimpleNamespace(tiles=tiles))
    info = kernel([item]).info
    if refused:
        with pytest.raises(UserError, match="workgroup 3: found a bulk copy that stores, in a run whose stores go to"):
            check_bulk(node, info, item)
    else:
        check_bulk(node, info, item)
    with pytest.raises(UserError, match="but the machine has none"):
        check_bulk(SimpleNamespace(bulk_units=[], output=node.output), info, item)
