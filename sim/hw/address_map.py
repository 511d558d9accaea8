"""Maps of an address: to its channel, its L2 bank and set, its DRAM bank, row and column.

Every map here is a bijection. The channel and the channel-local address determine the address. The bank, row and
column determine the channel-local address. So two lines never share a place. The numbers of channels, slices and sets
may be any number (an A100 has 40 channels). DRAM banks, rows and columns are powers of two (JEDEC), so their maps
are bit shifts. A hash of the row into the bank is optional (D18). Addresses are physical; there is no TLB (D2).
"""

from sim.hw.bits import quotient, remainder, trailing_zeros
from sim.hw.request import SECTOR_BYTES
from sim.spec import BankHash, BankMap, CacheIndex
from tracer.compile.jit import compiled
from tracer.compile.ones import ones

ATOM_BYTES = 64
"""One DRAM transaction: up to two 32-byte columns of one bank and row."""
ATOM_BITS = 6
LINE_BITS = 7
CHUNK_BITS = 8  # bytes in a row of map SG


@compiled
def fold(value, places):
    """XOR of all digits of `value`. It spreads power-of-two strides.

    A digit has the bits that a number below `places` needs. The result is in 0 .. 2*places.
    """
    if value <= 0:
        return 0
    digit = 1 if places <= 2 else trailing_zeros(places)
    while (1 << digit) < places:
        digit += 1
    if digit == 1:
        return ones(value) & 1
    if digit < 4:  # XOR the upper half into the lower half until one digit is left
        value ^= value >> 16 * digit
    if digit < 8:
        value ^= value >> 8 * digit
    value ^= value >> 4 * digit
    value ^= value >> 2 * digit
    value ^= value >> digit
    return value & ((1 << digit) - 1)


@compiled
def scatter(ratio, places):
    """A number below `places`: the ratio, mixed by a multiplication. It spreads any stride."""
    return remainder((ratio * 0x9E3779B1) >> 15, places)


@compiled(inline=True)
def _hash(ratio, places, index):
    if index == CacheIndex.INTERLEAVE:
        return 0
    return fold(ratio, places) if index == CacheIndex.HASH else scatter(ratio, places)


@compiled(inline=True)
def spread(value, places, index):
    """Which of `places` the `value` selects. The pair of it and `value // places` is unique under each index policy."""
    if places == 1:
        return 0
    return remainder(value + _hash(quotient(value, places), places, index), places)


@compiled(inline=True)
def channel_of(address, interleave_bytes, channels, index):
    """Channel of a byte address; `index` is a CacheIndex. The interleave is a power of two here and below."""
    return spread(address >> trailing_zeros(interleave_bytes), channels, index)


@compiled(inline=True)
def channel_local(address, interleave_bytes, channels):
    """Byte address within its channel."""
    bits = trailing_zeros(interleave_bytes)
    return (quotient(address >> bits, channels) << bits) + (address & (interleave_bytes - 1))


@compiled(inline=True)
def set_of(value, sets, index):
    """Set of line number `value` of a cache. A run of `sets` lines from a multiple of `sets` uses each set once.

    Both hashes are `scatter` here.
    """
    if index != CacheIndex.INTERLEAVE:
        return remainder(value + scatter(quotient(value, sets), sets), sets)
    return remainder(value, sets)


@compiled(inline=True)
def l2_place(line, interleave_bytes, channels, index, slices, sets, set_index):
    """(L2 bank, set in it) of a line address. The lines of a channel are distributed over its slices, one bank each.

    The lines of one bank, in order, use all sets evenly.
    """
    local_line = channel_local(line, interleave_bytes, channels) >> LINE_BITS
    bank = channel_of(line, interleave_bytes, channels, index) * slices + spread(local_line, slices, index)
    return bank, set_of(quotient(local_line, slices), sets, set_index)


@compiled
def hashed_bank(bank, row, bits, bank_hash):
    """The bank with the hash of its row; applied twice it gives the bank back. bits: width of the bank number."""
    if bank_hash == BankHash.NONE or bits == 0:
        return bank
    return bank ^ fold(row, 1 << bits)


@compiled
def bank_row_column(local, group_bits, bank_bits, row_bits, bank_map, bank_hash):
    """Bank (group-major), row and 32-byte column of a channel-local byte address.

    Args:
        local: byte address within the channel.
        group_bits, bank_bits, row_bits: log2 of bank groups, banks per group, bytes per row.
        bank_map: BankMap. RO: row | group | bank | column | offset; BG: row | bank | column | group | 64 B;
            RG: row | bank | group | column | offset; SG: row | bank | upper group | column | low group bit | 256 B.
        bank_hash: BankHash.

    Returns:
        (bank, row, column) with bank = group * banks_per_group + bank within its group.
    """
    row = local >> (row_bits + bank_bits + group_bits)
    if bank_map == BankMap.BG:
        group = (local >> ATOM_BITS) & ((1 << group_bits) - 1)
        atom = (local >> (ATOM_BITS + group_bits)) & ((1 << (row_bits - ATOM_BITS)) - 1)
        byte = (atom << ATOM_BITS) + (local & (ATOM_BYTES - 1))
        bank = (local >> (row_bits + group_bits)) & ((1 << bank_bits) - 1)
    elif bank_map == BankMap.RG:
        byte = local & ((1 << row_bits) - 1)
        group = (local >> row_bits) & ((1 << group_bits) - 1)
        bank = (local >> (row_bits + group_bits)) & ((1 << bank_bits) - 1)
    elif bank_map == BankMap.SG:
        low_bits = min(group_bits, 1)
        chunk = local >> (CHUNK_BITS + low_bits)
        byte = ((chunk & ((1 << (row_bits - CHUNK_BITS)) - 1)) << CHUNK_BITS) + (local & ((1 << CHUNK_BITS) - 1))
        upper = (local >> (row_bits + low_bits)) & ((1 << (group_bits - low_bits)) - 1)
        group = (upper << low_bits) + ((local >> CHUNK_BITS) & ((1 << low_bits) - 1))
        bank = (local >> (row_bits + group_bits)) & ((1 << bank_bits) - 1)
    else:
        byte = local & ((1 << row_bits) - 1)
        bank = (local >> row_bits) & ((1 << bank_bits) - 1)
        group = (local >> (row_bits + bank_bits)) & ((1 << group_bits) - 1)
    bank = hashed_bank((group << bank_bits) + bank, row, group_bits + bank_bits, bank_hash)
    return bank, row, byte // SECTOR_BYTES
