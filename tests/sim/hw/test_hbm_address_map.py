"""The address maps are bijections and use every channel, bank and set evenly."""

import functools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hw.address_map import (
    bank_row_column,
    channel_local,
    channel_of,
    fold,
    l2_place,
)
from sim.spec import BankHash, BankMap, CacheIndex
from tests.support.address_inverse import channel_address, local_of

INDEXES = [int(index) for index in CacheIndex]  # plain integers: an enum member is another kernel signature
NO_HASH = int(BankHash.NONE)
L2_GEOMETRIES = [  # interleave_bytes, channels, banks, sets: V100-, A100-, MI210-, H200-like, and one odd machine
    (256, 32, 64, 32),
    (512, 40, 80, 512),
    (256, 32, 32, 128),
    (256, 48, 96, 256),
    (128, 3, 9, 7),
]
DRAM_GEOMETRIES = [(2, 2, 11), (2, 2, 10), (2, 3, 11), (0, 4, 11), (3, 0, 12)]  # log2 groups, banks per group, row


def test_fold_is_the_exclusive_or_of_all_digits():
    random = np.random.default_rng(1)
    for places in range(1, 257):
        digit_bits = max(1, (places - 1).bit_length())
        for value in random.integers(0, 1 << random.integers(1, 63, 8)).tolist():
            digits = [value >> place & (1 << digit_bits) - 1 for place in range(0, 64, digit_bits)]
            assert fold(value, places) == functools.reduce(operator.xor, digits)


@pytest.mark.parametrize("index", INDEXES)
@settings(deadline=None)
@given(address=st.integers(0, 2**44), interleave=st.sampled_from([128, 256, 512, 4096]), channels=st.integers(1, 64))
def test_channel_and_local_address_give_the_address_back(index, address, interleave, channels):
    channel = channel_of(address, interleave, channels, index)
    local = channel_local(address, interleave, channels)
    assert 0 <= channel < channels
    assert channel_address(channel, local, interleave, channels, index) == address


@pytest.mark.parametrize("bank_hash", [int(bank_hash) for bank_hash in BankHash])
@pytest.mark.parametrize("bank_map", [int(bank_map) for bank_map in BankMap])
@pytest.mark.parametrize("geometry", [*DRAM_GEOMETRIES, (0, 0, 10)])
def test_bank_row_column_round_trip(bank_map, geometry, bank_hash):
    group_bits, bank_bits, row_bits = geometry
    seen = set()
    columns = 1 << (group_bits + bank_bits + row_bits - 5 + 1)  # two rows of every bank
    for local in range(0, 32 * columns, 32):
        bank, row, column = bank_row_column(local, *geometry, bank_map, bank_hash)
        assert 0 <= bank < 1 << (group_bits + bank_bits)
        assert 0 <= column < 1 << (row_bits - 5)
        assert local_of(bank, row, column, *geometry, bank_map, bank_hash) == local
        seen.add((bank, row, column))
    assert len(seen) == columns


def test_maps_of_hbm2_md():
    """RO: row15|bg2|bank2|col5|off6; BG: row15|bank2|col5|bg2|off6. Ours, not there: RG: row15|bank2|bg2|col5|off6."""
    geometry = (2, 2, 11)
    assert bank_row_column(64, *geometry, int(BankMap.RO), NO_HASH) == (0, 0, 2)
    assert bank_row_column(2048, *geometry, int(BankMap.RO), NO_HASH) == (1, 0, 0)
    assert bank_row_column(8192, *geometry, int(BankMap.RO), NO_HASH) == (4, 0, 0)
    assert bank_row_column(32768, *geometry, int(BankMap.RO), NO_HASH) == (0, 1, 0)
    assert bank_row_column(64, *geometry, int(BankMap.BG), NO_HASH) == (4, 0, 0)
    assert bank_row_column(256, *geometry, int(BankMap.BG), NO_HASH) == (0, 0, 2)
    assert bank_row_column(8192, *geometry, int(BankMap.BG), NO_HASH) == (1, 0, 0)
    assert bank_row_column(32768, *geometry, int(BankMap.BG), NO_HASH) == (0, 1, 0)
    assert bank_row_column(64, *geometry, int(BankMap.SG), NO_HASH) == (0, 0, 2)
    assert bank_row_column(256, *geometry, int(BankMap.SG), NO_HASH) == (4, 0, 0)
    assert bank_row_column(512, *geometry, int(BankMap.SG), NO_HASH) == (0, 0, 8)
    assert bank_row_column(4096, *geometry, int(BankMap.SG), NO_HASH) == (8, 0, 0)
    assert bank_row_column(8192, *geometry, int(BankMap.SG), NO_HASH) == (1, 0, 0)
    assert bank_row_column(32768, *geometry, int(BankMap.SG), NO_HASH) == (0, 1, 0)
    assert bank_row_column(64, *geometry, int(BankMap.RG), NO_HASH) == (0, 0, 2)
    assert bank_row_column(2048, *geometry, int(BankMap.RG), NO_HASH) == (4, 0, 0)
    assert bank_row_column(8192, *geometry, int(BankMap.RG), NO_HASH) == (1, 0, 0)
    assert bank_row_column(32768, *geometry, int(BankMap.RG), NO_HASH) == (0, 1, 0)


@pytest.mark.parametrize("geometry", DRAM_GEOMETRIES)
def test_the_hash_of_the_row_moves_every_bank_by_the_exclusive_or_of_the_rows_digits(geometry):
    group_bits, bank_bits, _ = geometry
    banks = 1 << (group_bits + bank_bits)
    for local in range(0, 1 << 26, (1 << 16) + 512):
        bank, row, column = bank_row_column(local, *geometry, int(BankMap.RG), NO_HASH)
        digits = [row >> place & (banks - 1) for place in range(0, 30, group_bits + bank_bits)]
        moved = functools.reduce(operator.xor, digits, bank)
        assert bank_row_column(local, *geometry, int(BankMap.RG), int(BankHash.XOR)) == (moved, row, column)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("geometry", L2_GEOMETRIES)
def test_a_buffer_of_the_size_of_l2_fills_every_set_evenly(index, geometry):
    interleave, channels, banks, sets = geometry
    ways = 2
    lines = interleave // 128 * channels * (banks // channels) * sets * ways
    fill = np.zeros((banks, sets), int)
    for line in range(lines):
        fill[l2_place(line * 128, interleave, channels, index, banks // channels, sets, index)] += 1
    assert fill.min() == fill.max() == lines // (banks * sets)


STRIDES = [1 << 10, 1 << 13, 1 << 16, 5 << 11, 11 << 10, 7 << 12, 43 << 9]
"""Distances of the rows of matrices: powers of two, and K = 5120, 5632, 14336 and 11008 in 16 bits."""


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("geometry", [*L2_GEOMETRIES, (256, 64, 64, 768), (256, 160, 160, 128)])
def test_scatter_spreads_any_stride_over_channels_and_sets(geometry, stride):
    interleave, channels, banks, sets = geometry
    index = int(CacheIndex.SCATTER)
    lines = stride * np.arange(64 * channels)
    hits = np.bincount([channel_of(line, interleave, channels, index) for line in lines], minlength=channels)
    assert hits.max() <= 1.6 * hits.mean() and hits.min() >= 0.5 * hits.mean()
    fill = np.zeros((banks, sets), int)
    for line in lines:
        fill[l2_place(line, interleave, channels, index, banks // channels, sets, index)] += 1
    assert fill.max() <= 16 + 2 * fill.mean()  # they stay in a cache of 16 ways


@pytest.mark.parametrize("geometry", L2_GEOMETRIES)
def test_hash_spreads_power_of_two_strides(geometry):
    interleave, channels, _, _ = geometry
    for stride_bits in range(10, 21):
        hits = np.zeros(channels, int)
        for step in range(64 * channels):
            hits[channel_of(step << stride_bits, interleave, channels, int(CacheIndex.HASH))] += 1
        assert hits.max() <= 4 * 64


def naive_spread(value, places, index):
    """`address_map.spread`, digit by digit."""
    ratio, digit_bits = value // places, max(1, (places - 1).bit_length())
    digits = [ratio >> place & (1 << digit_bits) - 1 for place in range(0, 64, digit_bits)]
    mixed = {
        CacheIndex.INTERLEAVE: 0,
        CacheIndex.HASH: functools.reduce(operator.xor, digits),
        CacheIndex.SCATTER: (((ratio * 0x9E3779B1 + (1 << 63)) % (1 << 64) - (1 << 63)) >> 15) % places,  # 64 bits
    }
    return (value + mixed[CacheIndex(index)]) % places


@pytest.mark.parametrize("set_index", INDEXES)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("geometry", [*L2_GEOMETRIES, (256, 5, 5, 3)])
def test_place_in_l2_is_that_of_the_definition(geometry, index, set_index):
    interleave, channels, banks, sets = geometry
    slices = banks // channels
    for line in (np.random.default_rng(banks).integers(0, 1 << 40, 500) * 128).tolist():
        local_line = (line // (interleave * channels) * interleave + line % interleave) // 128
        bank = naive_spread(line // interleave, channels, index) * slices + naive_spread(local_line, slices, index)
        of_set = CacheIndex.INTERLEAVE if set_index == CacheIndex.INTERLEAVE else CacheIndex.SCATTER
        place = bank, naive_spread(local_line // slices, sets, of_set)
        assert l2_place(line, interleave, channels, index, slices, sets, set_index) == place
