"""Inverses of the address maps: `channel_of` with `channel_local`, and `bank_row_column`."""

from sim.hw.address_map import ATOM_BITS, ATOM_BYTES, CHUNK_BITS, hashed_bank, spread
from sim.hw.request import SECTOR_BYTES
from sim.spec import BankMap


def channel_address(channel, local, interleave_bytes, channels, index):
    """Inverse of `channel_of` and `channel_local`."""
    first = local // interleave_bytes * channels
    block = first + (channel - spread(first, channels, index)) % channels
    return block * interleave_bytes + local % interleave_bytes


def local_of(bank, row, column, group_bits, bank_bits, row_bits, bank_map, bank_hash):
    """Channel-local byte address of a bank, row and column: the inverse of `bank_row_column`."""
    bank = hashed_bank(bank, row, group_bits + bank_bits, bank_hash)
    group = bank >> bank_bits
    bank_in_group = bank & ((1 << bank_bits) - 1)
    byte = column * SECTOR_BYTES
    if bank_map == BankMap.BG:
        atom = (((row << bank_bits) + bank_in_group) << (row_bits - ATOM_BITS)) + (byte >> ATOM_BITS)
        return (((atom << group_bits) + group) << ATOM_BITS) + (byte & (ATOM_BYTES - 1))
    if bank_map == BankMap.RG:
        return (((((row << bank_bits) + bank_in_group) << group_bits) + group) << row_bits) + byte
    if bank_map == BankMap.SG:
        low_bits = min(group_bits, 1)
        upper = ((row << bank_bits) + bank_in_group << (group_bits - low_bits)) + (group >> low_bits)
        chunk = (upper << (row_bits - CHUNK_BITS)) + (byte >> CHUNK_BITS)
        low = group & ((1 << low_bits) - 1)
        return (((chunk << low_bits) + low) << CHUNK_BITS) + (byte & ((1 << CHUNK_BITS) - 1))
    return (((((row << group_bits) + group) << bank_bits) + bank_in_group) << row_bits) + byte
