"""Copies from the host: selects the lines of a copy that must be put into L2. The final state equals a full copy."""

from math import lcm

from sim.hw.request import LINE_BYTES
from sim.spec import Machine


def even_bytes(machine: Machine) -> int:
    """Size of a block in bytes. An aligned block of this size has the same number of lines in each set of L2."""
    l2, hbm = machine.l2, machine.hbm
    slices = l2.banks // hbm.channels
    sets = l2.bytes // (l2.banks * l2.ways * LINE_BYTES)
    return hbm.channels * lcm(hbm.interleave_bytes, LINE_BYTES * slices * sets)


def prefill_ranges(machine: Machine, address: int, size_bytes: int) -> list[tuple[int, int]]:
    """First line and end of the parts of a copy that decide the final contents of L2.

    The lines of a copy reach a set of W ways in order. At most W of them are already present. So after 2 W lines each
    line replaces the least recently used way, one way after the other in a fixed order. From then on any multiple of W
    lines may be skipped if the last W lines are kept: the same lines are then in the same ways.
    """
    first, end = address - address % LINE_BYTES, address + size_bytes
    ways, block = machine.l2.ways, even_bytes(machine)
    blocks = end // block - -(-first // block)
    left_out = (blocks - 3 * ways) // ways * ways
    if left_out <= 0:
        return [(first, end)]
    head_end = (-(-first // block) + 2 * ways) * block
    return [(first, head_end), (head_end + left_out * block, end)]
