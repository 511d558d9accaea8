"""The way between the CUs of a group: distributed shared memory, remote arrivals, and the barrier of a cluster.

The workgroups of a cluster run at the same time on CUs of one group (GPC). Each CU has a port towards the others. Its
load/store unit and its bulk copy unit put packets there: accesses to the shared memory of another workgroup, lines of a
bulk copy to it, arrivals at its transaction barriers. A packet occupies the port of its CU, then that of the other CU,
then takes the latency. The other CU answers at once; the answer takes the same way back through ports of its own. Until
then the packet holds an entry of L1 (MSHR), so the packets under way are bounded.

What comes to a CU waits in its *mail* until its time: answers, arrivals, bytes of copies that another workgroup has
made (also multicast from L2, `sim.hw.noc`), and the news that the barrier of the cluster is open. Mail for a workgroup
that has ended is dropped.

Source: CUDA C++ programming guide, thread block clusters; PTX ISA, mapa, mbarrier, barrier.cluster. Left out: bank
conflicts, and that remote accesses use the port of the shared memory that they read (D48).
"""

import numpy as np

from sim.hw.barrier import cluster_opens, data_came, phase_arrival
from sim.hw.cu_record import MAX_WORKGROUPS
from sim.hw.fifo import fifo_head, fifo_request, fifo_take
from sim.hw.lsu import lsu_answer
from sim.hw.peers_record import News
from sim.hw.request import NEVER, SECTOR_BYTES, Op
from sim.hw.signals import member_cu, unpack_signal
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled


@compiled
def post(peer, mail, ready_ps, news, cluster, ranks):
    """Put a message into the mail of a CU, behind all that are due by then. Returns it: the caller fills in the rest.

    Writes: peer, mail.
    """
    box = mail[peer.cu]
    mask = len(box) - 1
    if peer.waiting == 0:
        peer.head = peer.tail = 0  # the host's cache holds the first places
    number = peer.tail
    peer.tail += 1
    peer.waiting += 1
    while number > peer.head and box[(number - 1) & mask].ready_ps > ready_ps:
        box[number & mask] = box[(number - 1) & mask]
        number -= 1
    message = box[number & mask]
    message.ready_ps, message.news, message.cluster, message.ranks = ready_ps, news, cluster, ranks
    message.entry = message.number = message.bytes = message.barrier = 0
    return message


@compiled(inline=True)
def mail_ps(peer, mail):
    """When the next message is due, NEVER if there is none. Reads: peer, mail."""
    if peer.waiting == 0:
        return NEVER
    box = mail[peer.cu]
    return box[peer.head & (len(box) - 1)].ready_ps


@compiled
def read_mail(cu, lsu, l1, sets, warps, peer, mail, now_ps):
    """Take the messages that are due. Returns picoseconds that woken warps had slept for data.

    Reads: mail. Writes: cu, lsu, l1, sets, warps, peer.
    """
    stalled_ps = 0
    while mail_ps(peer, mail) <= now_ps:
        message = mail[peer.cu][peer.head & (len(mail[peer.cu]) - 1)]
        peer.head += 1
        peer.waiting -= 1
        if message.news == News.ANSWER:
            stalled_ps += lsu_answer(cu, lsu, l1, sets, warps, np.int64(message.entry), now_ps)
        else:
            _tell(cu, warps, peer, message, now_ps)
    return stalled_ps


@compiled
def _tell(cu, warps, peer, message, now_ps):
    """Tell a message to the workgroups of this CU that it means."""
    told, seen = 0, 0
    for place in range(MAX_WORKGROUPS):
        if seen == cu.taken:
            break
        resident = cu.resident[place]
        if resident.tag < 0:
            continue
        seen += 1
        if resident.cluster != message.cluster or (message.ranks >> resident.rank) & 1 == 0 or resident.alive == 0:
            continue
        told += 1
        if message.news == News.OPEN:
            peer.cluster_barriers += 1
            cluster_opens(cu, warps, resident, now_ps)
        elif message.news == News.ARRIVAL:
            number, arrivals = np.int64(message.barrier), np.int64(message.number)
            phase_arrival(cu, warps, resident, number, arrivals, np.int64(message.bytes), now_ps)
        else:
            data_came(cu, warps, resident, np.int64(message.barrier), np.int64(message.number), now_ps)
    if told == 0:
        peer.dropped += 1


@compiled(inline=True)
def _port_ps(peer, data_bytes):
    return (data_bytes + peer.bytes_per_clk - 1) // peer.bytes_per_clk * peer.period_ps


@compiled(inline=True)
def asker_gets(cus, answer):
    """Does the workgroup that asked for a multicast line get the data too? Reads: cus, answer."""
    ranks, place, _, _ = unpack_signal(answer.share)
    return (ranks >> cus[answer.source].resident[place].rank) & 1 == 1


@compiled
def deliver(cus, peers, mail, cu_in_ps, answer, port_ps, out_ps, latency_ps, cu_wake_ps):
    """Bring a multicast line, which leaves L2 at out_ps, to all its workgroups; each CU takes it once, at its port.

    The workgroup that asked gets its answer when all have the data. So its L1 entry bounds the messages under way. Its
    own port is free for the next packet at cu_in_ps, which the caller has set.

    Returns:
        Number of ports that the line went through, besides that of the caller.

    Reads: cus, answer. Writes: peers, mail, cu_in_ps, cu_wake_ps.
    """
    ranks, place, barrier, data_bytes = unpack_signal(answer.share)
    own_cu, ports = np.int64(answer.source), 0
    own = cus[own_cu].resident[place]
    left = ranks & ~(1 << np.int64(own.rank))
    last_ps = np.int64(cu_in_ps[own_cu])
    for rank in range(own.size):
        if (left >> rank) & 1 == 0:
            continue
        c = member_cu(own.members[rank])
        here = 0
        for other in range(rank, own.size):
            if (left >> other) & 1 == 1 and member_cu(own.members[other]) == c:
                here |= 1 << other
        left &= ~here
        if c != own_cu or not asker_gets(cus, answer):
            cu_in_ps[c] = max(cu_in_ps[c] + port_ps, out_ps)
            ports += 1
        last_ps = max(last_ps, cu_in_ps[c])
        message = post(peers[c], mail, cu_in_ps[c] + latency_ps, News.BYTES, own.cluster, here)
        message.barrier, message.number = barrier, data_bytes
        peers[c].multicast_lines += 1
        peers[c].multicast_bytes += data_bytes
        cu_wake_ps[c] = min(cu_wake_ps[c], cu_in_ps[c] + latency_ps)
    post(peers[own_cu], mail, last_ps + latency_ps, News.ANSWER, own.cluster, 0).entry = answer.load
    cu_wake_ps[own_cu] = min(cu_wake_ps[own_cu], last_ps + latency_ps)
    return ports


@compiled
def carry_packets(peers, mail, fifos, pool, begin_ps, end_ps, cu_wake_ps):
    """Carry the packets of the window [begin_ps, end_ps) in the order of the clocks in which they leave.

    Within a clock the CUs take turns, as at the crossbar (D8).

    Args:
        begin_ps, end_ps: whole clocks of the crossbar.
        cu_wake_ps: i8 [CUs], lowered to the times of the messages.

    Returns:
        When the next packet leaves, NEVER if there is none.

    Writes: peers, mail, fifos, pool, cu_wake_ps.
    """
    period_ps, next_ps = peers[0].slot_ps, NEVER
    busy = 0  # bit per slot
    for c in range(len(peers)):
        port = fifos[peers[c].port]
        for number in range(port.head, port.tail):
            ready_ps = fifo_request(port, pool, number).ready_ps
            if ready_ps >= end_ps:
                next_ps = min(next_ps, ready_ps)
                break
            busy |= 1 << (max(ready_ps - begin_ps, 0) // period_ps)
    slot = 0
    while busy >> slot != 0:
        if (busy >> slot) & 1:
            slot_ps = begin_ps + slot * period_ps
            for k in range(len(peers)):
                c = (slot_ps // period_ps + k) % len(peers)
                _carry_from(peers, c, mail, fifos, pool, slot_ps, cu_wake_ps)
        slot += 1
    return next_ps


@compiled
def _carry_from(peers, c, mail, fifos, pool, slot_ps, cu_wake_ps):
    """Carry the packets of a CU that leave in a slot."""
    port = fifos[peers[c].port]
    while port.head != port.tail and fifo_head(port, pool).ready_ps < slot_ps + peers[c].slot_ps:
        packet = fifo_head(port, pool)
        leaves_ps = max(packet.ready_ps, slot_ps)
        _carry(peers, c, mail, packet, leaves_ps, cu_wake_ps)
        fifo_take(port, pool, leaves_ps)


@compiled
def _carry(peers, c, mail, packet, leaves_ps, cu_wake_ps):
    """Carry a packet (`sim.hw.lsu_lines.send_to_peer`) to its CU, and the answer back."""
    own, to = peers[c], np.int64(packet.bank)
    other = peers[to]
    data_bytes = sectors_in(packet.sectors) * SECTOR_BYTES
    volume = own.header_bytes + (0 if packet.op == Op.READ else data_bytes)
    own.packets += 1
    own.packet_bytes += volume
    own.out_ps = max(own.out_ps, leaves_ps) + _port_ps(own, volume)
    other.in_ps = max(other.in_ps + _port_ps(own, volume), own.out_ps)
    there_ps = other.in_ps + own.latency_ps
    if packet.share != 0:
        _bring(other, mail, packet, there_ps)
        cu_wake_ps[to] = min(cu_wake_ps[to], there_ps)
    volume = own.header_bytes + (data_bytes if packet.op == Op.READ or packet.op == Op.ATOMIC else 0)
    other.answer_bytes += volume
    other.answer_out_ps = max(other.answer_out_ps, there_ps) + _port_ps(own, volume)
    own.answer_in_ps = max(own.answer_in_ps + _port_ps(own, volume), other.answer_out_ps)
    back_ps = own.answer_in_ps + own.latency_ps
    message = post(own, mail, back_ps, News.ANSWER, packet.contributors, 0)
    message.entry = packet.load
    cu_wake_ps[c] = min(cu_wake_ps[c], back_ps)


@compiled
def _bring(other, mail, packet, there_ps):
    """Bring bytes or an arrival to a transaction barrier of another workgroup."""
    ranks, _, barrier, data_bytes = unpack_signal(packet.share)
    message = post(other, mail, there_ps, News.BYTES, packet.contributors, ranks)
    message.barrier, message.number = barrier, data_bytes
    if packet.sectors == 0:
        message.news, message.number, message.bytes = News.ARRIVAL, packet.line, packet.tag
