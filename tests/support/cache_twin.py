"""Sectored caches as a book explains them: dicts and sets, no records, no free lists. The naive twins of L1 and L2."""

from sim.hw.request import Op
from sim.spec import WriteMiss
from traces.schema import Cache


def sectors_of(mask):
    return {s for s in range(4) if mask >> s & 1}


def mask_of(sectors):
    return sum(1 << s for s in sectors)


class Way:
    """One line."""

    def __init__(self, line, used):
        self.line, self.used = line, used
        self.valid, self.dirty, self.pending = set(), set(), set()
        self.waiting = []  # [missing sectors, request]


class L1Twin:
    """Allocate on fill, LRU, misses joined by sector."""

    def __init__(self, sets, ways):
        self.sets, self.ways, self.clock = sets, ways, 0
        self.lines = [{} for _ in range(sets)]  # line -> [last touch, valid sectors]
        self.misses = {}  # number -> [line, sectors, loads, keep]

    def read(self, line, mask, load):
        """(hit, joined, missing masks, number of misses joined)."""
        self.clock += 1
        wanted, hit = sectors_of(mask), set()
        held = self.lines[line // 128 % self.sets].get(line)
        if held:
            held[0] = self.clock
            hit = wanted & held[1]
        missing, waits = wanted - hit, 0
        for miss in self.misses.values():
            if miss[0] == line and miss[1] & missing and miss[3]:
                miss[2].append(load)
                missing -= miss[1]
                waits += 1
        return mask_of(hit), mask_of(wanted - hit - missing), mask_of(missing), waits

    def miss(self, number, line, mask, load, keep):
        self.misses[number] = [line, sectors_of(mask), [load], keep]

    def answer(self, number):
        """Loads that the answer credits."""
        line, sectors, loads, keep = self.misses.pop(number)
        if keep:
            self.clock += 1
            lines = self.lines[line // 128 % self.sets]
            if line not in lines:
                if len(lines) == self.ways:
                    del lines[min(lines, key=lambda one: lines[one][0])]
                lines[line] = [self.clock, set()]
            lines[line][1] |= sectors
        return loads


class L2Twin:
    """One bank: write-back or write-through, write-allocate with the fetch that `miss` names, misses merged by line.

    random: a line that goes first makes room, else any that is not on its way. Victims are counted, and a hash of the
    count (Knuth's multiplier) says where in the set to look for one.

    `sent` collects (op, line, sector mask) towards DRAM, `answered` the requests that were answered, in order.
    """

    def __init__(self, sets, ways, merges, through=False, miss=WriteMiss.LAZY, random=False):
        self.through, self.miss, self.random, self.victims = through, miss, random, 0
        self.sets, self.merges, self.clock = [[None] * ways for _ in range(sets)], merges, 0
        self.sent, self.answered = [], []

    def find(self, line):
        return next((w for w in self.sets[line // 128 % len(self.sets)] if w and w.line == line), None)

    def lines_in_flight(self):
        return sum(bool(way and way.pending) for ways in self.sets for way in ways)

    def dirty(self):
        """(line, sector mask) of all dirty lines."""
        return {(way.line, mask_of(way.dirty)) for ways in self.sets for way in ways if way and way.dirty}

    def write_back(self, way, sectors):
        gone = way.dirty & sectors
        if gone:
            self.sent.append((Op.WRITE, way.line, mask_of(gone)))
            way.dirty -= gone

    def place(self, request):
        """The line's way, made the most recently used; None if every line of its set is on its way.

        A line of which only streamed requests came is older than all others.
        """
        self.clock += 1
        way = self.find(request.line)
        if way:
            way.used = self.clock if way.used or request.cache != Cache.STREAM else 0
            return way
        ways = self.sets[request.line // 128 % len(self.sets)]
        free = [k for k, way in enumerate(ways) if way is None] or sorted(
            (k for k, way in enumerate(ways) if not way.pending), key=lambda k: ways[k].used
        )
        if not free:
            return None
        victim = free[0]
        if self.random and ways[victim] and ways[victim].used > 0:
            look = ((self.victims + 1) * 2654435761 >> 15) % len(ways)
            victim = min(free, key=lambda k: (k - look) % len(ways))
        self.victims += 1
        if ways[victim]:
            self.write_back(ways[victim], {0, 1, 2, 3})
        ways[victim] = Way(request.line, 0 if request.cache == Cache.STREAM else self.clock)
        return ways[victim]

    def serve(self, request):
        """Take a request; False if it must wait."""
        if request.op == Op.UPDATE or (request.cache == Cache.UNCACHED and request.op in (Op.READ, Op.WRITE)):
            self.pass_through(request)
            return True
        return self.write(request) if request.op == Op.WRITE else self.read(request)

    def write(self, request):
        way, written, full = self.place(request), sectors_of(request.sectors), sectors_of(request.full)
        if way is None:
            return False
        wanted = {WriteMiss.LAZY: set(), WriteMiss.PARTIAL: written - full, WriteMiss.ALL: written}[self.miss]
        missing = wanted - way.valid - way.pending
        if missing:
            way.pending |= missing
            self.sent.append((Op.READ, request.line, mask_of(missing)))
        way.valid |= full
        if self.through:
            way.dirty -= full
            self.sent.append((Op.WRITE, request.line, request.sectors))
        else:
            way.dirty |= written
        self.answer(request)
        return True

    def read(self, request):
        way = self.find(request.line)
        if way and len(way.waiting) >= self.merges:
            return False
        way = self.place(request)
        if way is None:
            return False
        wanted = sectors_of(request.sectors)
        missing = wanted - way.valid - way.pending
        if missing:
            way.pending |= missing
            self.sent.append((Op.READ, request.line, mask_of(missing)))
        if wanted <= way.valid:
            self.done(way, request)
        else:
            way.waiting.append([wanted - way.valid, request])
        return True

    def done(self, way, request):
        if request.op != Op.READ:
            way.dirty |= sectors_of(request.sectors)
        self.answer(request)

    def answer(self, request):
        """Data, or the acknowledgement of a store."""
        if request.answered:
            self.answered.append(request.number)

    def pass_through(self, request):
        way, sectors = self.find(request.line), sectors_of(request.sectors)
        if way:
            if request.op == Op.WRITE:
                way.dirty -= sectors_of(request.full)
            self.write_back(way, sectors)
            if request.op != Op.READ:
                way.valid -= sectors
        self.sent.append((request.op, request.line, request.sectors))
        if request.op != Op.READ:
            self.answer(request)

    def fill(self, line, mask, uncached_number):
        """Data from DRAM; of an uncached read, its request's number."""
        if uncached_number is not None:
            self.answered.append(uncached_number)
            return
        way, came = self.find(line), sectors_of(mask)
        way.pending -= came
        way.valid |= came
        for one in reversed(way.waiting):
            one[0] -= came
            if not one[0]:
                self.done(way, one[1])
        way.waiting = [one for one in way.waiting if one[0]]
