"""Naive twin of a link: packets one by one, all times in femtoseconds, no windows."""

from collections.abc import Sequence
from typing import NamedTuple

FS = 1000


class Packet(NamedTuple):
    ready_ps: int
    volume: int  # bytes
    tag: int


def link_twin(
    stores: Sequence[Packet],
    lines: Sequence[Packet],
    data: Sequence[Packet],
    *,
    fs_per_byte: int,
    header_bytes: int,
    latency_ps: int,
    credits: int,
    hold_ps: Sequence[int],
) -> list[tuple[int, int]]:
    """(tag, arrival_ps) in the order in which packets leave.

    stores: of the CUs, and their loads, which have no volume. lines: of DMA engines. data: for loads of another GPU.
    hold_ps: how long the receiver keeps each of them, in that order, before its place is free.
    """
    queues = [list(stores), list(lines), list(data)]
    free_fs, arrived, freed_ps = 0, [], []
    while any(queues):
        queue = min((queue for queue in queues if queue), key=lambda queue: queue[0].ready_ps)
        packet = queue.pop(0)
        sent = len(arrived)
        credit_ps = 0 if sent < credits else freed_ps[sent - credits] + latency_ps
        free_fs = max(packet.ready_ps * FS, credit_ps * FS, free_fs) + (packet.volume + header_bytes) * fs_per_byte
        arrived.append((packet.tag, -(-free_fs // FS) + latency_ps))
        # Packets are taken in order, so one that is held holds those behind it.
        freed_ps.append(max([arrived[-1][1] + hold_ps[sent], *freed_ps[-1:]]))
    return arrived
