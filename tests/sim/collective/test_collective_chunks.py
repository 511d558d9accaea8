"""Stages and chunks: who makes, sends and owns what, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collective.chunks import Chunks, chunks_of, even_chunks
from sim.collective.topology import port_distances, port_to
from sim.spec import Topology
from traces.errors import UserError

sizes = st.lists(st.integers(1, 9), min_size=2, max_size=32)


@given(sizes=sizes)
def test_every_gpu_walks_every_tile_once(sizes):
    chunks = chunks_of(sizes)
    for gpu in range(chunks.gpus):
        walk = [tile for local in range(chunks.gpus) for tile in chunks.span(gpu, local)]
        assert sorted(walk) == list(range(sum(sizes)))
        # The staggered walk is the plain one, begun elsewhere and round the end.
        start = chunks.start_tile(gpu)
        assert walk == [(start + k) % chunks.tiles for k in range(chunks.tiles)]


@given(sizes=sizes)
def test_what_one_sends_the_next_makes_in_its_next_stage(sizes):
    chunks = chunks_of(sizes)
    for gpu in range(chunks.gpus):
        ahead = (gpu + 1) % chunks.gpus
        for local in range(chunks.gpus - 1):
            assert chunks.span(gpu, local) == chunks.span(ahead, local + 1)


@given(sizes=sizes)
def test_each_chunk_has_one_owner_as_far_ahead_as_it_says(sizes):
    chunks = chunks_of(sizes)
    owners = {chunks.global_chunk(gpu, chunks.gpus - 1): gpu for gpu in range(chunks.gpus)}
    assert len(owners) == chunks.gpus
    for gpu in range(chunks.gpus):
        for local in range(chunks.gpus):
            owner = (gpu + chunks.owner_distance(local)) % chunks.gpus
            assert owners[chunks.global_chunk(gpu, local)] == owner


@given(gpus=st.integers(2, 64), more=st.integers(0, 500))
def test_even_chunks_differ_by_a_tile_at_most(gpus, more):
    chunks = even_chunks(gpus + more, gpus)
    found = [len(chunks.span(0, local)) for local in range(gpus)]
    assert sum(found) == gpus + more and max(found) - min(found) <= 1 and min(found) >= 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: even_chunks(10, 1), "gpus: found 1, allowed are 2 to 64: a collective needs two"),
        (lambda: even_chunks(100, 65), "gpus: found 65, allowed are 2 to 64: a set of GPUs is kept in 64 bits"),
        (lambda: even_chunks(3, 4), "gpus: found 4 for an output of 3 tiles; allowed is one tile per GPU"),
        (lambda: chunks_of([3]), "gpus: found 1"),
        (lambda: chunks_of([3, 0, 2]), "chunks: found 0, allowed are sizes from 1: every GPU owns at least one tile"),
        (lambda: chunks_of([3, -1, 2]), "chunks: found -1, allowed are sizes from 1"),
        (lambda: Chunks(3, (0, 3, 3, 5)), r"edges \[0, 3, 3, 5\] for 3 GPUs; allowed are 4 rising numbers from 0"),
        (lambda: Chunks(2, (1, 2, 3)), "rising numbers from 0"),
        (lambda: Chunks(3, (0, 2, 3)), "4 rising numbers"),
    ],
)
def test_cuts_that_make_no_sense_are_refused(make, words):
    with pytest.raises(UserError, match=words):
        make()


@pytest.mark.parametrize("gpus", [2, 3, 8, 64])
def test_ports_lead_where_they_say(gpus):
    assert port_distances(Topology.RING, gpus) == (1, gpus - 1)
    for topology in (Topology.FULLY_CONNECTED, Topology.SWITCH):
        assert port_distances(topology, gpus) == tuple(range(1, gpus))
        assert [port_to(topology, gpus, distance) for distance in range(1, gpus)] == list(range(gpus - 1))
    assert port_to(Topology.RING, gpus, 1) == 0 and port_to(Topology.RING, gpus, gpus + 1) == 0
    if gpus > 2:
        assert port_to(Topology.RING, gpus, -1) == 1


@pytest.mark.parametrize("distance", [0, 2, 4, 8])
def test_a_neighbour_that_no_link_leads_to_is_refused(distance):
    with pytest.raises(UserError, match=rf"ring of 8 GPUs: no link to the GPU {distance} ahead; allowed are 1, 7"):
        port_to(Topology.RING, 8, distance)


def test_in_turn_each_chunk_gives_a_tile():
    assert even_chunks(8, 4).in_turn(0).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert even_chunks(8, 4).in_turn(1).tolist() == [6, 0, 2, 4, 7, 1, 3, 5]
    assert sorted(chunks_of((1, 4, 2)).in_turn(2)) == list(range(7))
    assert even_chunks(8, 2, 2).in_turn(0, 2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_tiles_of_a_cluster_stay_in_a_chunk():
    assert even_chunks(20, 4, 2).edges == (0, 4, 10, 14, 20)
    with pytest.raises(UserError, match="a cluster of 2 tiles per GPU"):
        even_chunks(6, 4, 2)
    assert chunks_of((1, 4, 2)).in_turn(0).tolist() == [0, 1, 5, 2, 6, 3, 4]
