"""What is known of an output tile: fingerprints of its sectors, sets of contributors, whole rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collective.ledger import sector_sums
from sim.hw.request import LINE_BYTES, SECTOR_BYTES
from sim.hw.space import (
    BUFFER_BITS,
    BUFFER_SKEW_BYTES,
    SPACE,
    TILE,
    WAVEFRONT,
    all_gpus,
    contributor_weight,
    fingerprint,
    held,
    held_by_wavefront,
    rotated,
    row_end,
    share_weight,
    space_of,
    wavefront_of,
)
from tests.support.plain_records import kernel_view
from tests.support.tile_shapes import cuts, owners_of, sectors_of, shapes, tile_record

WRAP = 1 << 64


def total(tile, parts):
    """Sum of the fingerprints of (line, sectors) requests, modulo 2^64."""
    record = kernel_view(tile)[0]
    return sum(int(fingerprint(record, line, mask)) for line, mask in parts) % WRAP


def packed(random, sectors):
    """The sectors (addresses) as (line, mask) requests in any order, some lines split over several requests."""
    parts = []
    for line in {address // LINE_BYTES for address in sectors}:
        bits = [address // SECTOR_BYTES % 4 for address in sectors if address // LINE_BYTES == line]
        random.shuffle(bits)
        cut = int(random.integers(0, len(bits) + 1))
        parts += [(line * LINE_BYTES, sum(1 << bit for bit in some)) for some in (bits[:cut], bits[cut:]) if some]
    random.shuffle(parts)
    return parts


@given(shape=shapes(), seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_sum_does_not_depend_on_packing_or_order(shape, seed):
    random, tile = np.random.default_rng(seed), tile_record(shape)
    sectors = sectors_of(shape)
    assert total(tile, packed(random, sectors)) == int(sector_sums(tile)[0]) % WRAP


@given(shape=shapes(), seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_sector_that_is_missing_twice_there_or_another_changes_the_sum(shape, seed):
    random, tile = np.random.default_rng(seed), tile_record(shape)
    sectors = sectors_of(shape)
    whole = int(sector_sums(tile)[0]) % WRAP
    one = sectors[int(random.integers(len(sectors)))]
    other = one + SECTOR_BYTES * int(random.integers(1, 1000))
    without = [address for address in sectors if address != one]
    for wrong in (without, [*sectors, one], [*without, other]):
        parts = [(address // LINE_BYTES * LINE_BYTES, 1 << address // SECTOR_BYTES % 4) for address in wrong]
        assert total(tile, parts) != whole


@pytest.mark.slow
def test_places_of_a_tile_have_fingerprints_of_their_own():
    tile = tile_record((0, 1, 1 << 20, 0))
    found = {int(fingerprint(kernel_view(tile)[0], line, 1 << s)) for line in range(0, 1 << 20, 128) for s in range(4)}
    assert len(found) == (1 << 20) // SECTOR_BYTES


def test_a_receive_buffer_has_the_fingerprints_of_the_output():
    tile = kernel_view(tile_record((0x10000 + 32, 3, 200, 4096)))[0]
    for line in (0x10000, 0x11000, 0x11080):
        for buffer in (1, 2, 31):
            assert fingerprint(tile, line, 5) == fingerprint(
                tile, line + buffer * ((1 << BUFFER_BITS) + BUFFER_SKEW_BYTES), 5
            )


@pytest.mark.slow
@given(gpus=st.integers(2, 32), members=st.sets(st.integers(0, 31)), places=st.integers(1, 31))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_set_as_a_gpu_further_on_sees_it(gpus, members, places):
    """Bit k is the k-th GPU before the one that looks."""
    places = 1 + (places - 1) % (gpus - 1)
    members = {member % gpus for member in members}
    bits = sum(1 << member for member in members)
    as_stored = np.array([bits], np.uint64).view(np.int64)[0]  # in a request it is an i8
    seen = int(rotated(as_stored, places, gpus, all_gpus(gpus))) % WRAP
    assert seen == sum(1 << (member + places) % gpus for member in members)


@pytest.mark.parametrize(
    ("own", "arrived", "arrived_bytes", "expected", "early"),
    [
        (1, 0, 0, 0b1, 0),
        (1, 0b110, 256, 0b111, 0),
        (1, 0b110, 512, 0b111, 0),  # two GPUs sent the tile here
        (0, 0, 0, 0b1, 0),
        (0, 0b100, 256, 0b100, 0),  # what arrived, without its own
        (1, 0b110, 224, 0, 1),  # a sector is still on its way
        (0, 0b100, 32, 0, 1),
    ],
)
def test_who_is_in_what_a_gpu_sends_on(own, arrived, arrived_bytes, expected, early):
    tile = np.zeros(1, TILE)
    tile["own"], tile["bytes"], tile["arrived"], tile["arrived_bytes"] = own, 256, arrived, arrived_bytes
    assert held(kernel_view(tile)[0]) == expected and tile["early"][0] == early


@pytest.mark.parametrize(
    ("arrived", "arrived_bytes", "expected", "early"),
    [(0, 0, 0b1, 0), (0b110, 96, 0b110, 0), (0b110, 192, 0b110, 0), (0b110, 64, 0, 1)],
)
@pytest.mark.parametrize("own", [0, 1])
def test_who_is_in_a_wavefronts_part_that_a_gpu_sends_on(own, arrived, arrived_bytes, expected, early):
    """Whatever has come for the rest of the tile."""
    tile, part = np.zeros(1, TILE), np.zeros(1, WAVEFRONT)
    tile["own"], expected = own, expected | own if not early else 0
    tile["bytes"], tile["arrived"], tile["arrived_bytes"] = 256, 0b1000, 32
    part["bytes"], part["arrived"], part["arrived_bytes"] = 96, arrived, arrived_bytes
    assert held_by_wavefront(kernel_view(tile)[0], kernel_view(part)[0]) == expected and tile["early"][0] == early


@given(shape=shapes(), cut=cuts())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_plan_tells_who_stores_each_sector(shape, cut):
    tile = kernel_view(tile_record(shape, parts=cut))[0]
    for sector, owner in owners_of(shape, cut).items():
        assert wavefront_of(tile, sector) == owner


def test_rows_end_at_whole_sectors():
    tile = kernel_view(tile_record((96, 3, 100, 512)))[0]
    assert [int(row_end(tile, run)) for run in range(3)] == [224, 736, 1248]  # 96 + 100 = 196 lies in 192 .. 223


def test_an_address_lies_in_one_buffer_or_none():
    spaces = np.zeros(3, SPACE)
    spaces["first_byte"], spaces["end_byte"] = [256, 1024, 0], [512, 2048, 0]
    found = [int(space_of(kernel_view(spaces), address)) for address in (0, 128, 256, 511, 512, 1024, 2047, 2048)]
    assert found == [-1, -1, 0, 0, -1, 1, 1, -1]


def test_weights_tell_who_came_and_how_often():
    """Of disjoint sets they add up; no two small multisets of GPUs have the same."""
    weights = [int(contributor_weight(1 << k)) for k in range(32)]
    assert int(contributor_weight(0b1011)) % WRAP == (weights[0] + weights[1] + weights[3]) % WRAP
    assert int(contributor_weight(0)) == 0 and all(weight % 2 for weight in weights)
    sums = {(weights[i] + weights[j]) % WRAP for i in range(32) for j in range(i, 32)}
    assert len(sums | {weight % WRAP for weight in weights}) == 32 * 33 // 2 + 32
    assert [int(share_weight(share)) for share in range(3)] == [1, 3, 5]
