"""The naive twin of the crossbar: lists of packets, every clock and every source in turn, no calendar, no wake times.

Left out: multicast, whose answers need clusters.
"""

from bisect import insort
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from sim.hw.request import NEVER, Op, Stream
from sim.spec import L2Sharing


class Ports(NamedTuple):
    """A crossbar in numbers. Widths are in bytes per clock. `sources`: queues of each CU."""

    cus: int
    banks: int
    sources: int
    links: int
    period_ps: int
    latency_ps: int
    request: int
    response: int
    bank: int
    far: int
    header_bytes: int
    ack_bytes: int
    partitions: int
    sharing: L2Sharing
    far_ps: int


class NocTwin:
    """Queues by name hold packets, oldest first: dicts of the fields of a request; `home`: bank and set of its line.

    Attributes:
        limit, credit_ps: of the queues by name.
        taken_ps: by queue, when each of its packets was taken.
        counts: counters by name.
        told_ps: by receiver ("bank", "cu", "copy"; number), the first arrival.
    """

    def __init__(self, ports, limit, credit_ps):
        self.ports, self.limit, self.credit_ps = ports, limit, credit_ps
        self.queue: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.taken_ps: dict[str, list[int]] = defaultdict(list)
        self.asked: Counter[str] = Counter()  # places of a queue that requests have asked for
        self.place: dict[str, tuple[str, int]] = {}  # of a source whose head waits: the queue and its place
        self.free_ps: Counter[tuple[str, int]] = Counter()  # of ports
        self.counts: Counter[str] = Counter()
        self.last_ack_ps = 0
        self.told_ps: dict[tuple[str, int], int] = {}
        parts = [f"{name}{bank}" for name in ("l2.hits", "l2.late") for bank in range(ports.banks)]
        if self.shares():
            parts += [f"l2.far_answers{c}" for c in range(ports.cus)]
        self.answering = parts + [f"link.data{link}" for link in range(ports.links)]

    def shares(self):
        return self.ports.partitions > 1 and self.ports.sharing != L2Sharing.PRIVATE

    def sources_of(self, c):
        return [f"cu.port{c}", f"cu.leave_port{c}"][: self.ports.sources]

    def take(self, name, now_ps):
        self.taken_ps[name].append(now_ps)
        return self.queue[name].pop(0)

    def tell(self, kind, number, ready_ps):
        self.told_ps[kind, number] = min(self.told_ps.get((kind, number), NEVER), ready_ps)

    def clocks_ps(self, volume, width):
        return -(-volume // width) * self.ports.period_ps

    def pass_port(self, port, volume, width, before_ps):
        """The end of a packet at a port; the port before it had it until before_ps."""
        self.free_ps[port] = max(self.free_ps[port] + self.clocks_ps(volume, width), before_ps)
        return self.free_ps[port]

    def requests(self, begin_ps, end_ps):
        for slot_ps in range(begin_ps, end_ps, self.ports.period_ps):
            first = slot_ps // self.ports.period_ps
            for turn in range(self.ports.cus):
                c = (first + turn) % self.ports.cus
                for name in self.sources_of(c):
                    while self.send(c, name, slot_ps):
                        pass

    def way(self, c, packet):
        """(queue of the oldest request of CU c, its bank or None, is it far?, `bank` that it carries)."""
        if packet["link"]:
            return f"link.stores{packet['link'] - 1}", None, False, None
        ports, home = self.ports, packet["home"][0]
        own, in_part = c % ports.partitions, ports.banks // ports.partitions
        if ports.sharing == L2Sharing.PRIVATE:
            bank = own * in_part + home % in_part
            return f"l2.requests{bank}", bank, False, bank
        if home // in_part == own:
            return f"l2.requests{home}", home, False, home
        if ports.sharing == L2Sharing.COPIES and packet["op"] == Op.READ and not packet["cache"]:
            bank = own * in_part + home % in_part
            return f"l2.requests{bank}", bank, False, home
        return f"l2.far{home}", home, True, home

    def room_ps(self, name, place):
        """When the packet that went before by the depth of the queue has left it and its credit has come."""
        before = place - self.limit[name]
        if before < 0:
            return 0
        taken_ps = self.taken_ps[name]
        return taken_ps[before] + self.credit_ps[name] if before < len(taken_ps) else NEVER

    def leaves_ps(self, c, name):
        """When the oldest request of a source can leave, as far as known."""
        if not self.queue[name]:
            return NEVER
        leaves_ps = max(self.queue[name][0]["ready_ps"], self.free_ps["cu out", c])
        if self.way(c, self.queue[name][0])[2]:
            leaves_ps = max(leaves_ps, self.free_ps["far out", c])
        return max(leaves_ps, self.room_ps(*self.place[name])) if name in self.place else leaves_ps

    def send(self, c, name, slot_ps):
        """Send the oldest request of a source if it can leave in this slot."""
        last_ps = slot_ps + self.ports.period_ps - 1
        if self.leaves_ps(c, name) > last_ps:
            return False
        packet = self.queue[name][0]
        target, bank, far, carried = self.way(c, packet)
        if name not in self.place:
            self.place[name] = target, self.asked[target]
            self.asked[target] += 1
            if self.room_ps(*self.place[name]) > last_ps:
                self.counts["refused"] += 1
                return False
        del self.place[name]
        now_ps = max([packet["ready_ps"], slot_ps, *self.taken_ps[name][-1:]])
        self.take(name, now_ps)
        volume = self.ports.header_bytes + (0 if packet["op"] == Op.READ else 32 * packet["sectors"].bit_count())
        self.counts["request_packets"] += 1
        self.counts["request_bytes"] += volume
        self.free_ps["cu out", c] = max(self.free_ps["cu out", c], now_ps)
        self.free_ps["cu out", c] += self.clocks_ps(volume, self.ports.request)
        left_ps, path_ps = self.free_ps["cu out", c], self.ports.latency_ps
        if bank is None:
            self.put_in_order(target, packet, left_ps + path_ps)
            return True
        if far:
            left_ps = self.pass_port(("far out", c), volume, self.ports.far, left_ps)
            path_ps += self.ports.far_ps
            self.counts["far_requests"] += 1
        ready_ps = self.pass_port(("bank in", bank), volume, self.ports.bank, left_ps) + path_ps
        self.queue[target].append(packet | {"ready_ps": ready_ps, "bank": carried, "cache_set": packet["home"][1]})
        self.tell("bank", bank, ready_ps)
        return True

    def put_in_order(self, name, packet, ready_ps):
        insort(self.queue[name], packet | {"ready_ps": ready_ps}, key=lambda one: one["ready_ps"])

    def next_request_ps(self):
        return min(self.leaves_ps(c, name) for c in range(self.ports.cus) for name in self.sources_of(c))

    def next_waiting_ps(self):
        waiting = [(c, name) for c in range(self.ports.cus) for name in self.sources_of(c) if name in self.place]
        return min((self.leaves_ps(c, name) for c, name in waiting), default=NEVER)

    def bank_of(self, name):
        """The bank whose port an answer takes; None for far answers and data of links."""
        return int(name[7:]) if name.startswith(("l2.hits", "l2.late")) else None

    def answer_ps(self, name):
        """When the oldest answer of a source leaves."""
        if not self.queue[name]:
            return NEVER
        head_ps, bank = self.queue[name][0]["ready_ps"], self.bank_of(name)
        return head_ps if bank is None else max(head_ps, self.free_ps["bank out", bank])

    def answers(self, begin_ps, end_ps):
        for slot_ps in range(begin_ps, end_ps, self.ports.period_ps):
            first = slot_ps // self.ports.period_ps
            for turn in range(len(self.answering)):
                name = self.answering[(first + turn) % len(self.answering)]
                while self.answer_ps(name) < slot_ps + self.ports.period_ps:
                    leaves_ps = self.answer_ps(name)
                    self.answer(self.take(name, leaves_ps), name, leaves_ps)

    def next_answer_ps(self):
        return min(map(self.answer_ps, self.answering))

    def answer(self, packet, name, leaves_ps):
        ports, c, bank = self.ports, packet["source"], self.bank_of(name)
        posted = packet["op"] in (Op.WRITE, Op.REDUCE) and packet["load"] < 0
        if bank is None:
            if name.startswith("link"):
                packet |= {"op": Op.READ, "stream": Stream.COMM_READ, "link": 0}
            self.arrive(c, packet, leaves_ps)
            return
        volume = self.volume(packet)
        if c >= ports.cus and not packet["link"]:
            free_ps = max(self.free_ps["copy", c - ports.cus], leaves_ps) + self.clocks_ps(volume, ports.far)
            self.free_ps["copy", c - ports.cus] = free_ps
            self.queue[f"l2.copy_fills{c - ports.cus}"].append(packet | {"ready_ps": free_ps + ports.far_ps})
            self.tell("copy", c - ports.cus, free_ps + ports.far_ps)
            self.counts["far_answers"] += 1
            return
        self.counts["answer_packets"] += 1
        self.counts["answer_bytes"] += volume
        self.free_ps["bank out", bank] = out_ps = leaves_ps + self.clocks_ps(volume, ports.bank)
        if packet["link"]:
            self.put_in_order(f"link.loads{packet['link'] - 1}", packet | {"op": Op.DATA}, out_ps + ports.latency_ps)
            return
        if self.shares() and bank // (ports.banks // ports.partitions) != c % ports.partitions:
            self.counts["far_answers"] += 1
            there_ps = self.pass_port(("far in", c), volume, ports.far, out_ps) + ports.far_ps
            if not posted:
                self.queue[f"l2.far_answers{c}"].append(packet | {"ready_ps": there_ps})
                return
            self.last_ack_ps = max(self.last_ack_ps, there_ps + ports.latency_ps)
        self.arrive(c, packet, out_ps)

    def volume(self, packet):
        sectors = packet["sectors"].bit_count()
        store = packet["op"] in (Op.WRITE, Op.REDUCE)
        return sectors * self.ports.ack_bytes if store else self.ports.header_bytes + 32 * sectors

    def arrive(self, c, packet, out_ps):
        """Through the port into CU c. The acknowledgement of a posted store ends there."""
        volume = self.volume(packet)
        self.counts["cu_bytes"] += volume
        ready_ps = self.pass_port(("cu in", c), volume, self.ports.response, out_ps) + self.ports.latency_ps
        if packet["op"] in (Op.WRITE, Op.REDUCE):
            self.last_ack_ps = max(self.last_ack_ps, ready_ps)
            if packet["load"] < 0:
                return
        self.queue[f"cu.answers{c}"].append(packet | {"ready_ps": ready_ps})
        self.tell("cu", c, ready_ps)
