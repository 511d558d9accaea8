"""Copies from the host: which lines of one must be put into L2 so that it ends as if all of them had been."""

from math import lcm

from sim.hw.request import LINE_BYTES
from sim.spec import Machine


def even_bytes(machine: Machine) -> int:
    """Aligned blocks of so many bytes have equally many lines in each set of L2."""
    l2, hbm = machine.l2, machine.hbm
    slices = l2.banks // hbm.channels
    sets = l2.bytes // (l2.banks * l2.ways * LINE_BYTES)
    return hbm.channels * lcm(hbm.interleave_bytes, LINE_BYTES * slices * sets)


def prefill_ranges(machine: Machine, address: int, size_bytes: int) -> list[tuple[int, int]]:
    """First line and end of the parts of a copy that decide what it leaves in L2.

    A set of W ways meets the lines of a copy in order. At most W of them are there already, so after 2 W of them the
    least recently used way is replaced each time, one way after the other in an order that no longer changes. From
    there on any multiple of W lines may be left out, as long as the last W come: the same lines end in the same ways.
    """
    first, end = address - address % LINE_BYTES, address + size_bytes
    ways, block = machine.l2.ways, even_bytes(machine)
    blocks = end // block - -(-first // block)
    left_out = (blocks - 3 * ways) // ways * ways
    if left_out <= 0:
        return [(first, end)]
    head_end = (-(-first // block) + 2 * ways) * block
    return [(first, head_end), (head_end + left_out * block, end)]
