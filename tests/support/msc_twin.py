"""The naive twin of the memory-side cache with storage: lists and sets, no records, no free lists."""

from sim.hw.request import STREAMS, Op, Stream
from tests.support.cache_twin import mask_of, sectors_of


class MscTwin:
    """A cache as a book explains it. `sent`: requests to the channel, `answered`: tags, in order."""

    def __init__(self, sets, ways, write_back):
        self.ways, self.write_back, self.clock = ways, write_back, 0
        self.sets = [[] for _ in range(sets)]  # of ways: [line, last use, valid, dirty, pending, waiting]
        self.counts = dict.fromkeys(("hit", "merged", "miss"), 0)
        self.written = self.written_back = 0  # sectors
        self.sent, self.answered = [], []

    def line(self, line):
        return next((way for way in self.sets[line // 128 % len(self.sets)] if way["line"] == line), None)

    def clean(self, way, sectors):
        gone = way["dirty"] & sectors
        way["dirty"] -= gone
        if gone:
            self.written_back += len(gone)
            self.sent.append((Op.WRITE, way["line"], mask_of(gone)))

    def place(self, line):
        self.clock += 1
        way, ways = self.line(line), self.sets[line // 128 % len(self.sets)]
        if way is None and len(ways) == self.ways:
            old = min((one for one in ways if not one["pending"]), key=lambda one: one["used"], default=None)
            if old is None:
                return None
            self.clean(old, {0, 1, 2, 3})
            ways.remove(old)
        if way is None:
            way = {"line": line, "valid": set(), "dirty": set(), "pending": set(), "waiting": []}
            ways.append(way)
        way["used"] = self.clock
        return way

    def serve(self, op, line, sectors, tag, uncached, full=15):
        """Returns False if no way of the set is free, or data in flight would be older than an update."""
        wanted = sectors_of(sectors)
        if uncached and op != Op.UPDATE and self.line(line) is None:
            self.counts["miss"] += len(wanted) if op == Op.READ else 0
            self.sent.append((op, line, sectors))
            return True
        if op == Op.UPDATE:
            way = self.line(line)
            if way:
                if way["pending"] & wanted:
                    return False
                self.clean(way, wanted)
                way["valid"] -= wanted
            self.sent.append((Op.UPDATE, line, sectors))
            return True
        way = self.place(line)
        if way is None:
            return False
        if op == Op.WRITE:
            way["valid"] |= wanted & sectors_of(full)
            if self.write_back:
                self.written += len(wanted)
                way["dirty"] |= wanted
            else:
                self.sent.append((Op.WRITE, line, sectors))
            return True
        missing = wanted - way["valid"] - way["pending"]
        self.counts["hit"] += len(wanted & way["valid"])
        self.counts["merged"] += len((wanted & way["pending"]) - way["valid"])
        self.counts["miss"] += len(missing)
        if missing:
            way["pending"] |= missing
            self.sent.append((Op.READ, line, mask_of(missing)))
        if wanted <= way["valid"]:
            self.answered.append(tag)
        else:
            way["waiting"].append([wanted - way["valid"], tag])
        return True

    def fill(self, line, sectors):
        came, way = sectors_of(sectors), self.line(line)
        way["pending"] -= came
        way["valid"] |= came
        for one in reversed(way["waiting"]):
            one[0] -= came
            if not one[0]:
                self.answered.append(one[1])
        way["waiting"] = [one for one in way["waiting"] if one[0]]


class MscSliceTwin:
    """The cache between its fifos: lists, no wake times. It looks at every picosecond that it is told.

    Attributes:
        waiting: of each stream, (ready_ps, op, line, sectors, full, tag, uncached).
        out: of each stream, what it sent to the channel: (op, line, sectors, tag, full sectors, does it pass?).
        leaving: of each stream, when places become free that the channel has taken.
        taken_ps: of each stream, when its last request was taken. sent_ps: when it sent something.
        fills: data from the channel: (ready_ps, line, sectors, tag of a read that passed or -1).
        answers: (tag, ready_ps).
    """

    def __init__(self, cache, line_ps, latency_ps, room, misses, places):
        self.cache, self.line_ps, self.latency_ps, self.room = cache, line_ps, latency_ps, room
        self.misses, self.places, self.free_ps, self.passing, self.misses_max = misses, places, 0, 0, 0
        self.waiting, self.out = [[] for _ in range(STREAMS)], [[] for _ in range(STREAMS)]
        self.leaving, self.taken_ps = [[] for _ in range(STREAMS)], [0] * STREAMS
        self.fills, self.answers, self.sent_ps = [], [], []
        self.taken, self.since_ps, self.blocked_ps = [0] * STREAMS, [None] * STREAMS, [0] * STREAMS

    def ways(self):
        return [way for one in self.cache.sets for way in one]

    def in_flight(self):
        return self.passing + sum(bool(way["pending"]) for way in self.ways())

    def held(self, stream, now_ps):
        return len(self.out[stream]) + sum(free_ps > now_ps for free_ps in self.leaving[stream])

    def may(self, stream, op, now_ps):
        """Is there room for the request and a write-back, and for a read what it needs if it misses?"""
        least = 2 if self.cache.write_back else 1
        if self.room - self.held(stream, now_ps) < least:
            return False
        if self.cache.write_back and self.room - self.held(Stream.COMPUTE_WRITE, now_ps) < least:
            return False
        waits = sum(len(way["waiting"]) for way in self.ways())
        return op != Op.READ or (self.in_flight() < self.misses and waits < self.places)

    def look(self, now_ps):
        while self.fills and self.fills[0][0] <= now_ps:
            _, line, sectors, tag = self.fills.pop(0)
            if tag >= 0:
                self.passing -= 1
                self.cache.answered.append(tag)
            else:
                self.cache.fill(line, sectors)
            self.answer(now_ps)
        if now_ps < self.free_ps:
            return
        heads = sorted((one[0][0], stream) for stream, one in enumerate(self.waiting) if one and one[0][0] <= now_ps)
        able = [stream for _, stream in heads if self.may(stream, self.waiting[stream][0][1], now_ps)]
        waits = {stream for _, stream in heads} - set(able)
        for stream in able:
            if self.take(stream, now_ps):
                break
            waits.add(stream)
        for stream in waits:
            self.since_ps[stream] = now_ps if self.since_ps[stream] is None else self.since_ps[stream]

    def take(self, stream, now_ps):
        _, op, line, sectors, full, tag, uncached = self.waiting[stream][0]
        passes = op == Op.READ and uncached and self.cache.line(line) is None
        if not self.cache.serve(op, line, sectors, tag, uncached, full):
            return False
        self.passing += passes
        self.misses_max = max(self.misses_max, self.in_flight())
        for one in self.cache.sent:  # the request, or what it drives out
            own = one[:2] == (op, line)
            whole = full if own and (op != Op.READ or passes) else one[2]
            self.out[stream if own else Stream.COMPUTE_WRITE].append((*one, tag if own else -1, whole, passes))
            self.sent_ps.append(now_ps)
        self.cache.sent.clear()
        self.answer(now_ps)
        self.waiting[stream].pop(0)
        self.taken[stream] += 1
        self.taken_ps[stream] = now_ps
        self.free_ps = now_ps + self.line_ps
        if self.since_ps[stream] is not None:
            self.blocked_ps[stream] += now_ps - self.since_ps[stream]
            self.since_ps[stream] = None
        return True

    def answer(self, now_ps):
        self.answers += [(tag, now_ps + self.latency_ps) for tag in self.cache.answered]
        self.cache.answered.clear()
