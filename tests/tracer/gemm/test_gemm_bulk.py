"""GEMMs whose operand tiles come by bulk copies, alone and in clusters of workgroups."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.gemm_cases import LOADS, SMALL, STEP, at_site, program
from tracer.gemm.kernel import fragment_bytes, registers_per_thread
from tracer.gemm.plan import PC_STEP, Site, Slot, make_plan
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource, Layout, TileOrder
from traces.errors import UserError
from traces.schema import NO_SLOT, Bulk, Kind

BULK_WARP = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=2, copy=Copy.BULK, registers=128)


@pytest.mark.parametrize("pieces", [1, 2])
def test_bulk_copies_fill_stages_that_were_released(pieces):
    loads = [*LOADS, "FILLED"]
    after = ["AWAIT_DATA", *STEP, "RELEASED"]
    steps = ["AWAIT_DATA", *loads, *STEP, "RELEASED", "AWAIT_DATA", "AWAIT_STAGE", *loads, *STEP, "RELEASED", *after]
    if pieces == 2:  # loads follow the arithmetic of the first piece
        middle, end = ["AWAIT_STAGE", *loads], [*STEP, "RELEASED"]
        steps = ["AWAIT_DATA", *STEP, *loads, "AWAIT_DATA", *end, *STEP, *middle, "AWAIT_DATA", *end, *STEP, *end]
    kernel = replace(BULK_WARP, fragment_pieces=pieces)
    found = program(kernel)
    assert [one for one in found if one not in STEP] == [
        "SETUP", *loads, *[one for one in steps if one not in STEP], "CONVERT", "STORE", "EXIT"
    ]  # fmt: skip


def test_phases_of_bulk_copies_count_on_over_the_tiles_of_a_persistent_workgroup():
    kernel = replace(BULK_WARP, persistent=1)
    workgroup = GemmSource(GemmProblem(64, 32, 96), kernel).workgroup(0)  # two tiles of three K-steps
    waits = at_site(workgroup, Site.AWAIT_DATA)
    assert list(zip(waits["slot"].tolist(), waits["work"].tolist(), strict=True)) == [
        (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)
    ]  # fmt: skip
    free = at_site(workgroup, Site.AWAIT_STAGE)
    assert list(zip(free["slot"].tolist(), free["work"].tolist(), strict=True)) == [(2, 1), (3, 1), (2, 2), (3, 2)]
    copies = at_site(workgroup, Site.LOAD_A)
    assert copies["inner"].tolist() == copies["slot"].tolist() == [0, 1, 0, 1, 0, 1]


def test_phases_of_bulk_copies_begin_anew_in_each_share_of_k():
    source = GemmSource(GemmProblem(32, 32, 192), replace(BULK_WARP, split_k=2))
    waits = [at_site(source.workgroup(share), Site.AWAIT_DATA) for share in (0, 1)]
    phases = [list(zip(own["slot"].tolist(), own["work"].tolist(), strict=True)) for own in waits]
    assert phases == [[(0, 1), (1, 1), (0, 2)]] * 2


@pytest.mark.parametrize("persistent", [None, 1])
def test_a_producer_makes_the_same_copies_in_a_warp_of_its_own(persistent):
    """The other warps have the program of bulk copies without the copies. Nobody waits for the producer's warp."""
    problem, kernel = GemmProblem(64, 32, 96), replace(BULK_WARP, persistent=persistent)
    own, other = (GemmSource(problem, replace(kernel, copy=copy)) for copy in (Copy.BULK, Copy.PRODUCER))
    assert (own.info.warps_per_workgroup, other.info.warps_per_workgroup) == (1, 2)
    assert other.info.block == (64, 1, 1) and other.kernel.warps == 1
    for mixed, apart in zip(own.workgroups(), other.workgroups(), strict=True):
        computing, copying = np.split(apart.events, apart.first_event[1:2])
        copies = np.isin(mixed.events["pc"], [PC_STEP * site for site in COPYING])
        barrier = mixed.events["pc"] == PC_STEP * Site.REUSE_BARRIER  # between tiles: stages have barriers of their own
        assert np.array_equal(mixed.events[~copies & ~barrier], computing)
        assert np.array_equal(mixed.events[copies], copying[1:-1])
        assert [int(copying[at]["pc"]) // PC_STEP for at in (0, -1)] == [Site.SETUP, Site.EXIT]


COPYING = (Site.LOAD_A, Site.LOAD_B, Site.FILLED, Site.AWAIT_STAGE)


def test_a_producer_leaves_its_registers_to_the_others():
    problem, kernel = GemmProblem(256, 256, 64), GemmKernel(128, 128, 64, 4, 2, 3, copy=Copy.BULK)
    alone, with_producer = (registers_per_thread(problem, replace(kernel, copy=copy)) for copy in KINDS)
    assert with_producer < alone <= 9 / 8 * with_producer


KINDS = (Copy.BULK, Copy.PRODUCER)


@pytest.mark.parametrize(("warps", "reads"), [((8, 1), 16 + 128 // 4), ((1, 8), 128 // 4 + 16), ((4, 2), 32 + 64 // 4)])
def test_warps_of_a_warpgroup_read_their_common_operand_once_from_shared_memory(warps, reads):
    """reads: rows of A and columns of B, per warp."""
    problem, kernel = GemmProblem(128, 128, 64), GemmKernel(128, 128, 64, *warps, pipeline_depth=3, copy=Copy.PRODUCER)
    (one, together) = (replace(kernel, warpgroup=warps) for warps in (1, 4))
    assert fragment_bytes(problem, together, 64) == 64 * 2 * reads
    assert fragment_bytes(problem, one, 64) == 64 * 2 * (128 // warps[0] + 128 // warps[1])
    assert registers_per_thread(problem, together) < registers_per_thread(problem, one)
    (site,) = at_site(GemmSource(problem, together).workgroup(0), Site.FRAGMENTS)[:1]
    assert int(site["count"]) * 32 * 16 == 64 * 2 * reads


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("pieces", [1, 4])
def test_bulk_copies_read_the_bytes_that_other_copies_read(layout, pieces):
    problem = GemmProblem(200, 136, 104, b_layout=layout)
    kernel = GemmKernel(64, 64, 32, 2, 2, pipeline_depth=3, fragment_pieces=pieces, copy=Copy.ASYNC)

    def sectors(copy):
        found: dict = {}
        for workgroup in GemmSource(problem, replace(kernel, copy=copy)).workgroups():
            for site in (Site.LOAD_A, Site.LOAD_B):
                read = map(bytes_of, at_site(workgroup, site))
                found[workgroup.index, site] = set().union(*read)
        return found

    assert sectors(Copy.BULK) == sectors(Copy.ASYNC)


CLUSTERS = [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 2), (1, 1)), ((2, 2), (1, 1)), ((4, 2), (1, 1)), ((1, 4), (1, 1))]
PAIRS = [((2, 1), (2, 1)), ((1, 2), (1, 2)), ((4, 2), (2, 1)), ((2, 4), (1, 2)), ((2, 2), (2, 1))]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("cluster", "pair"), CLUSTERS + PAIRS)
@pytest.mark.parametrize("order", TileOrder)
def test_workgroups_of_a_cluster_get_their_tiles_and_each_byte_once(layout, cluster, pair, order):
    """What the copies of all workgroups bring to a pair is what its workgroups load alone, what they share once; it is
    as much as each expects. Of B the workgroups of a pair in m have equal parts, of A those of a pair in n."""
    problem = GemmProblem(232, 240, 104, b_layout=layout)
    kernel = GemmKernel(64, 64, 32, 2, 2, pipeline_depth=3, copy=Copy.BULK, order=order, group=2)
    shape = {"cluster_m": cluster[0], "cluster_n": cluster[1], "pair_m": pair[0], "pair_n": pair[1]}
    clustered = GemmSource(problem, replace(kernel, **shape))
    size = clustered.info.cluster
    assert size == cluster[0] * cluster[1]
    plain = GemmSource(problem, kernel)
    addresses = plain.output_tiles()["address"].tolist()
    alone = {address: loaded(one) for address, one in zip(addresses, plain.workgroups(), strict=True)}
    workgroups, tiles = list(clustered.workgroups()), clustered.output_tiles()
    for first in range(0, len(workgroups), size):
        members = workgroups[first : first + size]
        rows = {int(tiles[first + r]["row"]) for r in range(size)}
        columns = {int(tiles[first + r]["column"]) for r in range(size)}
        assert (len(rows), len(columns)) == cluster
        for rank, workgroup in enumerate(members):
            brought = [brought_to(rank, own, other) for own, other in enumerate(members)]
            got = [byte for steps in brought for step in steps for byte in step]
            of_pair = sorted(got + other_got(rank, members, cluster, pair))
            whole = alone[int(tiles[first + rank]["address"])]
            if pair == (1, 1):
                assert of_pair == whole
            else:
                other = alone[int(tiles[first + partner(rank, cluster, pair)]["address"])]
                assert of_pair == sorted({*whole, *other}) and len(got) < len(whole)
            others = [steps for own, steps in enumerate(brought) if own != rank]
            expected = [sum(map(len, step)) for step in zip(*others, strict=True)] or [0] * 4  # K-steps
            assert at_site(workgroup, Site.FILLED)["row_stride"].tolist() == expected


def partner(rank, cluster, pair):
    """The rank of the other workgroup of a pair: ranks go down the columns of a cluster."""
    return rank ^ 1 if pair[0] == 2 else rank + cluster[0] * (1 - 2 * (rank // cluster[0] % 2))


def other_got(rank, members, cluster, pair):
    """What comes to the other workgroup of a pair, if there is one."""
    if pair == (1, 1):
        return []
    other = partner(rank, cluster, pair)
    return [byte for own, one in enumerate(members) for step in brought_to(other, own, one) for byte in step]


def brought_to(rank, own, workgroup):
    """Addresses that the copies of a workgroup bring to that of another rank, a list for each K-step."""
    steps: list = [[]]
    for event in workgroup.events[: workgroup.first_event[1]]:
        if event["kind"] == Kind.BULK and (int(event["cycles"]) or 1 << own) >> rank & 1:
            steps[-1] += bytes_of(event)
        elif event["pc"] == PC_STEP * Site.FILLED:
            steps.append([])
    return steps[:-1]


def loaded(workgroup):
    """Addresses that the bulk copies of a workgroup read, sorted, each as often as it is read."""
    copies = workgroup.events[workgroup.events["kind"] == Kind.BULK]
    return sorted(byte for copy in copies for byte in bytes_of(copy))


def test_warps_release_a_stage_where_its_data_came_from():
    kernel = replace(BULK_WARP, tile_m=16, tile_n=16, cluster_m=2, cluster_n=2)
    source = GemmSource(GemmProblem(64, 64, 96), kernel)
    for workgroup in source.workgroups():
        rank = workgroup.index % 4
        released = at_site(workgroup, Site.RELEASED)
        row, column = [r for r in range(4) if r % 2 == rank % 2], [r for r in range(4) if r // 2 == rank // 2]
        assert set(released["cycles"].tolist()) == {sum(1 << r for r in {*row, *column})}
        assert set(released["work"].tolist()) == {3}  # one warp of each of them
        assert len(at_site(workgroup, Site.CLUSTER_HERE)) == len(at_site(workgroup, Site.CLUSTER_ALL)) == 1


@pytest.mark.parametrize(
    ("problem", "fields", "message"),
    [
        (GemmProblem(96, 64, 64), {"cluster_m": 2}, "cluster = 2x1: rows of tiles = 3, allowed are multiples of 2"),
        (GemmProblem(64, 96, 64), {"cluster_n": 2}, "cluster = 1x2: columns of tiles = 3"),
        (GemmProblem(64, 64, 64), {"cluster_m": 2, "start_tile": 1}, "start_tile = 1"),
        (GemmProblem(64, 64, 64), {"cluster_m": 2, "persistent": 3}, "persistent = 3"),
        (GemmProblem(512, 512, 64), {"cluster_m": 8, "cluster_n": 4}, "at most 16 workgroups"),
        (GemmProblem(64, 64, 64), {"cluster_m": 2, "copy": Copy.ASYNC}, "needs copy = bulk or producer"),
        (GemmProblem(64, 64, 64), {"copy": Copy.PRODUCER, "epilogue": Epilogue.STAGED}, "epilogue = staged, allowed"),
        (GemmProblem(64, 64, 64), {"warpgroup": 3}, "warpgroup = 3: must divide warps_m = 1 or warps_n = 1"),
        (GemmProblem(512, 64, 64), {"cluster_m": 16}, "does not fit B: row of a tile of 4 bytes"),
        (GemmProblem(64, 64, 64), {"pair_m": 2}, "pair_m = 2: must divide cluster_m = 1 evenly"),
        (GemmProblem(64, 64, 64), {"cluster_m": 2, "pair_n": 2}, "pair_n = 2: must divide cluster_n = 1 evenly"),
        (
            *(GemmProblem(64, 64, 64), {"cluster_m": 2, "cluster_n": 2, "pair_m": 2, "pair_n": 2}),
            "pair = 2x2: allowed are 1x1, 2x1 and 1x2",
        ),
    ],
)
def test_clusters_that_do_not_divide_are_refused(problem, fields, message):
    with pytest.raises(UserError, match=message):
        GemmSource(problem, replace(BULK_WARP, **fields))


def bytes_of(event):
    """Addresses that a copy reads."""
    base, stride, pitch = (int(event[name]) for name in ("base", "stride", "row_stride"))
    if event["kind"] == Kind.BULK:
        return {base + r * pitch + b for r in range(int(event["work"])) for b in range(stride)}
    inner, width = int(event["inner"]), int(event["width_bytes"])
    lanes = range(int(event["mask"]).bit_count())
    return {base + k % inner * stride + k // inner * pitch + b for k in lanes for b in range(width)}


@pytest.mark.parametrize(
    ("problem", "fields", "message"),
    [
        (SMALL, {"pipeline_depth": 9}, "with bulk copies at most 8"),
        (GemmProblem(32, 32, 100), {}, "does not fit A: pitch of 200 bytes"),
        (SMALL, {"tile_k": 4, "vector_bytes": 8}, "does not fit A: row of a tile of 8 bytes"),
    ],
)
def test_tiles_that_bulk_copies_cannot_copy_are_refused(problem, fields, message):
    with pytest.raises(UserError, match=message):
        GemmSource(problem, replace(BULK_WARP, **fields))


BOX_WARPS = GemmKernel(64, 64, 32, 2, 2, pipeline_depth=3, copy=Copy.ASYNC, epilogue=Epilogue.BULK)


def test_results_pass_through_shared_memory_and_leave_by_bulk_copies():
    after = ["CONVERT", "REUSE_BARRIER", "STAGE_OUT", "STORE", "EXIT"]
    assert program(replace(BOX_WARPS, tile_m=32, tile_n=32, warps_m=1, warps_n=1))[-5:] == after
    persistent = program(replace(BOX_WARPS, tile_m=32, tile_n=32, warps_m=1, warps_n=1, persistent=1))
    assert persistent[-4:] == ["CONVERT", "STAGE_OUT", "STORE", "EXIT"]  # its results have a place of their own
    detached = replace(BOX_WARPS, tile_m=32, tile_n=32, warps_m=1, warps_n=1, epilogue=Epilogue.DETACHED)
    assert program(detached)[-4:] == persistent[-4:]


@pytest.mark.parametrize(("epilogue", "left"), [(Epilogue.BULK, NO_SLOT), (Epilogue.DETACHED, Slot.COPIED)])
def test_a_detached_workgroup_leaves_the_slot_of_its_copies_to_the_next_one(epilogue, left):
    events = GemmSource(GemmProblem(64, 64, 64), replace(BOX_WARPS, epilogue=epilogue)).workgroup(0).events
    stores, exits = events[events["kind"] == Kind.BULK], events[events["kind"] == Kind.EXIT]
    assert set(stores["slot"]) == {Slot.COPIED} and set(exits["slot"]) == {left}


@pytest.mark.parametrize("split_k", [1, 2])
@pytest.mark.parametrize("layout", Layout)
def test_bulk_copies_store_the_bytes_that_the_warps_would_store(layout, split_k):
    problem = GemmProblem(200, 136, 104, c_layout=layout)

    def stored(epilogue):
        kernel = replace(BOX_WARPS, epilogue=epilogue, split_k=split_k)
        found: dict = {}
        for workgroup in GemmSource(problem, kernel).workgroups():
            for warp in range(kernel.warps):
                first, end = workgroup.first_event[warp : warp + 2]
                events = workgroup.events[first:end]
                events = events[events["pc"] == PC_STEP * Site.STORE]
                found[workgroup.index, warp] = set().union(*map(bytes_of, events))
                if kernel.boxes:
                    kinds = {Bulk.STORE if split_k == 1 else Bulk.REDUCE}
                    assert len(events) <= 1 and set(events["space"]) <= kinds
        return found

    assert stored(Epilogue.BULK) == stored(Epilogue.DETACHED) == stored(Epilogue.DIRECT)


def test_shared_memory_of_results_that_wait():
    """One place for operands and results, or two if the next operands are loaded while the results wait."""
    problem, operands, results = GemmProblem(256, 256, 256), 3 * (64 + 64) * 32 * 2, 64 * 64 * 2
    assert GemmSource(problem, BOX_WARPS).info.shared_bytes == operands
    assert GemmSource(problem, replace(BOX_WARPS, persistent=2)).info.shared_bytes == operands + results
    assert GemmSource(problem, replace(BOX_WARPS, epilogue=Epilogue.DETACHED)).info.shared_bytes == operands + results
    assert GemmSource(problem, replace(BOX_WARPS, pipeline_depth=1, tile_k=16)).info.shared_bytes == results


def test_results_that_bulk_copies_cannot_store_are_refused():
    with pytest.raises(UserError, match="epilogue: a bulk copy does not fit C: pitch of 200 bytes"):
        GemmSource(GemmProblem(100, 100, 64), BOX_WARPS)


@pytest.mark.parametrize("epilogue", [Epilogue.BULK, Epilogue.DETACHED])
def test_results_take_their_place_when_the_copies_before_them_have_read_it(epilogue):
    plan = make_plan(GemmProblem(64, 64, 64), replace(BULK_WARP, epilogue=epilogue))
    assert int(plan["stage_out"]["wait"]) == 1 << Slot.OUTPUT | 1 << Slot.COPIED
    assert int(plan["store"]["slot"]) == Slot.COPIED


def test_bulk_copies_find_their_addresses_themselves():
    """Instructions beside an access are of the stores only."""
    plain, counted = (GemmSource(SMALL, replace(BULK_WARP, access=access)).workgroup(0) for access in (0, 5))
    assert at_site(plain, Site.TENSOR)["count"].tolist() == at_site(counted, Site.TENSOR)["count"].tolist()
    assert at_site(counted, Site.ADDRESSES)["count"].tolist() == [5 * at_site(counted, Site.STORE).size]
