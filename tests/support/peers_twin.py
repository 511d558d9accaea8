"""Naive twin of the way between CUs of a group: packets one by one in Python, times as plain arithmetic."""

from typing import NamedTuple


class Packet(NamedTuple):
    source: int
    to: int
    ready_ps: int
    carries: int  # bytes of data on the way there
    returns: int  # and back


class Carried(NamedTuple):
    there_ps: int
    back_ps: int


def carry(packets, cus, *, latency_ps, clock_ps, slot_ps, bytes_per_clk, header_bytes):
    """Carried of each packet, in the order given. Packets of one source leave in this order."""
    order, left_ps = [], [0] * cus
    for number, packet in enumerate(packets):  # a packet leaves no earlier than the clock of the one before it
        slot = max(packet.ready_ps, left_ps[packet.source]) // slot_ps
        left_ps[packet.source] = slot * slot_ps
        order.append((slot, (packet.source - slot) % cus, number))
    out, into, answer_out, answer_in = ([0] * cus for _ in range(4))
    found = {}
    for slot, _, number in sorted(order):
        source, to, ready_ps, carries, returns = packets[number]
        ways_ps = [-(-(header_bytes + volume) // bytes_per_clk) * clock_ps for volume in (carries, returns)]
        out[source] = max(out[source], ready_ps, slot * slot_ps) + ways_ps[0]
        into[to] = max(into[to] + ways_ps[0], out[source])
        there_ps = into[to] + latency_ps
        answer_out[to] = max(answer_out[to], there_ps) + ways_ps[1]
        answer_in[source] = max(answer_in[source] + ways_ps[1], answer_out[to])
        found[number] = Carried(there_ps, answer_in[source] + latency_ps)
    return [found[number] for number in range(len(packets))]
