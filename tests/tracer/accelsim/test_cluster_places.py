"""Clusters in traces: their shape, and their workgroups wherever they stand in the file, or where some are missing."""

import numpy as np
import pytest

import t3sim
from tests.support.accelsim_texts import block_text, read, write
from tests.support.cluster_texts import PIPELINES, Pipeline, meets, text_of, trace
from tests.support.tracez_writer import tracez
from tests.support.transactions import EXIT
from tracer.accelsim.clusters import SINGLE, Clusters, places, shape_of
from tracer.accelsim.reader import open_accelsim
from traces.schema import Space


@pytest.mark.parametrize("pipe", PIPELINES[:6])
def test_clusters_come_whole_and_in_order(tmp_path, pipe):
    """Workgroups of a cluster are next to each other, by rank, whatever their place in the grid."""
    path = write(tmp_path, text_of(*trace(pipe, clusters=(3, 2, 2))))
    kernel = next(iter(open_accelsim(path).commands()))
    assert kernel.info.cluster == pipe.size
    clusters = Clusters(kernel.info.grid, pipe.shape)
    found = [clusters.place(workgroup.index) for workgroup in kernel.workgroups()]
    assert [place.rank for place in found] == list(range(pipe.size)) * 12
    assert sorted(set(found)) == [(c, r) for c in range(12) for r in range(pipe.size)]
    assert all(clusters.index(*clusters.place(index)) == index for index in range(kernel.info.workgroups))
    later = [workgroup.index for workgroup in kernel.workgroups(5)]
    assert later == [clusters.index(*place) for place in found[5:]]


def test_workgroups_come_by_rank_from_a_text_in_any_order(tmp_path):
    """More clusters wait at the same time than are kept without compression."""
    header, blocks = trace(Pipeline(shape=(1, 2, 1)), clusters=(20, 1, 1))
    line = "0050 0000000f 1 R8 LDG.E 1 R2 4 0 {:#x} 0x900 {:#x} 0x300 0 0 NoVal "
    blocks = [(*block, [[line.format(block[0][0], block[3]), EXIT]]) for *block, _ in blocks]
    in_order, _ = read(write(tmp_path, text_of(header, blocks)))
    reversed_order, problems = read(write(tmp_path, text_of(header, blocks[::-1])))
    assert len(problems) == 1 and "1 of 4 warps" in problems[0]
    assert [w.index for w in in_order] == [k + 20 * rank for k in range(20) for rank in range(2)]
    assert [w.index for w in reversed_order] == [k + 20 * rank for k in reversed(range(20)) for rank in range(2)]
    assert all(
        w.addresses.tolist() == [w.index % 20, 0x900, w.index // 20, 0x300] for w in [*in_order, *reversed_order]
    )


def test_a_tracez_gives_the_same_clusters(tmp_path):
    pipe = Pipeline(shape=(2, 2, 1))
    header, blocks = trace(pipe, clusters=(2, 1, 1))
    text, _ = read(write(tmp_path, text_of(header, blocks)))
    tails = [(*cluster, *place, rank) for _, cluster, place, rank, _ in blocks]
    packed = tracez(header, [(block, warps) for block, *_, warps in blocks], tails=tails)
    other, problems = read(write(tmp_path, packed, "kernel-1.tracez"))
    assert problems == [] and [w.index for w in text] == [w.index for w in other]
    assert all(np.array_equal(a.events, b.events) for a, b in zip(text, other, strict=True))


def test_missing_workgroups_of_a_cluster_do_nothing(tmp_path):
    header, blocks = trace(Pipeline(), clusters=(4, 1, 1))
    path = write(tmp_path, text_of(header, [block for n, block in enumerate(blocks) if n not in (2, 7)]))
    workgroups, problems = read(path)
    assert [w.index for w in workgroups] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert [len(w.events) == 1 for w in workgroups] == [False] * 4 + [True, False, False, True]
    assert any("2 of 8 thread blocks are missing" in line for line in problems)
    assert any("workgroups of the cluster are missing" in line and "2 times" in line for line in problems)
    assert [meets([w.events]) == 0 for w in workgroups] == [False] * 4 + [True] * 4
    result = t3sim.run(path, machine="h100_sxm")
    assert result.headline()["time_ns"] > 0


@pytest.mark.parametrize("missing", [0, 1])
def test_shared_memory_is_that_of_the_rank_where_a_workgroup_is_missing(tmp_path, missing):
    """Also of a kernel without transaction barriers."""
    base = 0x7F0000000000
    lines = [f"0050 0000ffff 1 R8 LD.E 2 R2 R3 4 1 {base + (rank << 24):#x} 4 0 0 NoVal " for rank in range(2)]
    header, blocks = trace(Pipeline(), clusters=(2, 1, 1), change=lambda rank, warps: [[*lines, EXIT]])
    path = write(tmp_path, text_of(header, [block for n, block in enumerate(blocks) if n != missing]))
    whole, part = (0, 1), (1 - missing,)
    for rank, workgroup in zip((*whole, *part), (w for w in read(path)[0] if len(w.events) > 1), strict=True):
        found = [(int(event["space"]), int(event["cycles"])) for event in workgroup.events[:2]]
        assert found == [(Space.SHARED, 0) if k == rank else (Space.REMOTE, 1 << k) for k in range(2)]
    assert int(t3sim.run(path, machine="h100_sxm").frame("l2")["read_sectors"].sum()) == 0


def test_a_damaged_workgroup_does_not_hold_its_cluster(tmp_path):
    """Lenient: what cannot be simulated is left out. The others of the cluster do not wait for it."""
    impossible = "0038 ffffffff 0 BAR.SYNC 0 0 77 0 NoVal "

    def change(rank, warps):
        return [[*[impossible] * (rank == 1), *lines] for lines in warps]

    path = write(tmp_path, text_of(*trace(Pipeline(shape=(4, 1, 1)), change=change)))
    workgroups, problems = read(path, lenient=True)
    assert any("allowed of a barrier 0 to 15" in line for line in problems)
    assert [len(w.events) > 1 for w in workgroups] == [True, False, True, True]
    assert meets([w.events for w in workgroups]) == 0


def test_an_unknown_size_of_clusters_is_said(tmp_path):
    header, blocks = trace(Pipeline(), clusters=(4, 1, 1))
    workgroups, problems = read(write(tmp_path, text_of(header, blocks[1:2])))
    assert len(workgroups) == 1 and any("size of its clusters cannot be told" in line for line in problems)


@pytest.mark.parametrize(
    ("grid", "size", "said"),
    [
        (34, 17, "found clusters of 17 workgroups, allowed are 1 to 16: its workgroups are taken as single ones"),
        (3, 2, "size of its clusters cannot be told"),
    ],
)
def test_impossible_clusters_are_said_and_read_as_single_workgroups(tmp_path, grid, size, said):
    """Of more than 16 workgroups, and not a part of the grid."""
    header, blocks = trace(Pipeline(), clusters=(17, 1, 1), change=lambda rank, warps: [[EXIT]])
    blocks = [(block, (0, 0, 0), (block[0] % size, 0, 0), 0, warps) for block, *_, warps in blocks[:grid]]
    path = write(tmp_path, text_of(header.replace("(34,1,1)", f"({grid},1,1)"), blocks))
    kernel = next(iter(open_accelsim(path).commands()))
    workgroups, problems = read(path)
    assert kernel.info.cluster == 1 and [w.index for w in workgroups] == list(range(grid))
    assert any(said in line for line in problems)


@pytest.mark.parametrize(("old", "new"), [("rank = 1", "rank = 0"), ("cta = 1,0,0", "cta = 0,0,0")])
def test_a_rank_that_contradicts_the_shape_is_said_with_its_line(tmp_path, old, new):
    """Ranks of the second workgroup of each cluster, or places without which there are no clusters."""
    text = text_of(*trace(Pipeline(), clusters=(2, 1, 1)))
    _, problems = read(write(tmp_path, text.replace(f"cluster {old}", f"cluster {new}")))
    second = text[: text.index("thread block = 1,0,0")].count("\n") + 1
    assert any(f":{second}: cluster rank = " in line and "(2 times)" in line for line in problems)


@pytest.mark.parametrize("seed", range(200))
def test_the_shape_follows_from_the_places_of_the_workgroups(seed):
    """In any order. With some workgroups missing it is right or unknown."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.permutation([int(random.integers(1, 5)), int(random.integers(1, 4)), 1]))
    grid = tuple(int(n * random.integers(1, 5)) for n in shape)
    blocks = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    found = [(block, tuple(b % s for b, s in zip(block, shape, strict=True))) for block in blocks]
    if seed % 2:
        random.shuffle(found)
    assert shape_of(grid, found) == shape
    kept = found[: int(random.integers(1, len(found) + 1))] if seed % 4 else found[::2]
    guess = SINGLE if all(place == (0, 0, 0) for _, place in kept) else None
    assert shape_of(grid, kept) in (shape, guess)


def test_places_are_found_wherever_the_text_is_cut():
    header, blocks = trace(Pipeline(), clusters=(2, 1, 1), change=lambda rank, warps: [[EXIT]])
    text = text_of(header, blocks).encode()
    expected = [(block, place) for block, _, place, *_ in blocks]
    for size in range(1, 100):
        pieces = [text[k : k + size] for k in range(0, len(text), size)]
        assert list(dict.fromkeys(places(pieces))) == expected


def test_a_text_without_places_has_no_clusters_and_is_read_no_further():
    pieces = iter([block_text([[EXIT]]).encode(), b"more"])
    assert list(places(pieces)) == [] and next(pieces) == b"more"

    def found():
        yield from ()

    assert shape_of((64, 64, 1), found()) == SINGLE
    read_places = iter([((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (0, 0, 0)), ((9, 9, 9), (9, 9, 9))])
    assert shape_of((64, 1, 1), read_places) == SINGLE and next(read_places) == ((9, 9, 9), (9, 9, 9))
