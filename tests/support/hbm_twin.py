"""The naive twin of a channel: clock by clock, one list of atoms, rules looked up in the checker's table.

It is the scheduler's policy in the shortest words. It shares no code with `sim.hw` but the names of commands and the
spec, and must give the same command log.
"""

import math
from collections import defaultdict

from sim.hw.hbm.log import Command
from sim.hw.request import Op
from sim.spec import Arbiter, BankMap, PagePolicy, QueueOrganisation, Turn
from tests.support.hbm_checker import ACT, BANK, CHANNEL, GROUP, PRE, PREA, RD, REF, UPD, WR, decode, rules

COLUMN_OF = {int(Op.READ): RD, int(Op.WRITE): WR, int(Op.UPDATE): UPD}
READS, WRITES = 0, 1
LONG_AGO = -(10**9)


class Atom:
    def __init__(self, hbm, access, tag, half, clock):
        sectors = access.sectors >> (2 * half) & 3
        byte = access.line + 64 * half
        self.line, self.tag, self.op, self.clock = access.line, tag, access.op, clock
        self.way = READS if access.op == Op.READ else WRITES
        self.bank, self.row, first = decode(hbm, byte)
        if hbm.column_bytes == 64:
            self.columns = [first]
        else:
            self.columns = [first + sector for sector in (0, 1) if sectors >> sector & 1]
        self.place = byte // 64

    def entries(self, hbm):
        return len(self.columns) * hbm.column_bytes // 32


class Twin:
    def __init__(self, hbm, accesses, in_order=False):
        self.hbm, self.accesses, self.in_order = hbm, accesses, in_order
        self.period_ps = round(1e6 / hbm.clock_MHz)
        self.fifos = [[] for _ in range(4)]
        for tag, access in enumerate(accesses):
            self.fifo_of(access.enters_by()).append(tag)
        self.queue = []
        self.open_row = {}
        self.last = defaultdict(lambda: LONG_AGO)
        self.activates = []
        self.log = []
        self.refreshes = 0
        self.mode, self.phase_left = READS, 0
        self.aged = None
        self.last_stream, self.turn = -1, []  # lines taken in this turn
        self.split = hbm.queue == QueueOrganisation.SPLIT
        self.row_busy_at = LONG_AGO
        self.table = defaultdict(list)
        for level, first, then, clocks in rules(hbm):
            self.table[then].append((level, first, clocks))
        self.high = min(math.floor(hbm.write_high * hbm.queue_entries), hbm.queue_entries - 4)
        self.low = min(math.ceil(hbm.write_low * hbm.queue_entries), self.high + 1)
        self.age_limit = math.ceil(hbm.age_limit_ps / self.period_ps)

    def run(self, end_ps):
        for clock in range(-(-end_ps // self.period_ps)):
            self.clock = clock
            self.step()
        return self.log

    def step(self):
        self.accept()
        if not self.queue:
            self.when_idle()
            return
        self.choose_mode()
        if self.owed() > self.hbm.refresh_postpone:
            self.refresh()
            return
        self.column()
        self.row()

    # --- what is legal

    def legal(self, command, bank):
        group = bank // self.hbm.banks_per_group
        for level, first, clocks in self.table[command]:
            where = {BANK: bank, GROUP: group, CHANNEL: 0}[level]
            if self.clock - self.last[level, first, where] < clocks:
                return False
        if command == ACT and len(self.activates) >= 4:
            return self.clock - self.activates[-4] >= self.hbm.timing.FAW
        return True

    def issue(self, command, bank, row=-1, column=-1, tag=-1):
        self.log.append((self.clock * self.period_ps, command, bank, row, column, tag))
        if command == PREA:
            for each in list(self.open_row):
                self.note(PRE, each)
        else:
            self.note(command, bank)
        if command not in (RD, WR, UPD):
            self.row_busy_at = self.clock
        if command == ACT:
            self.activates.append(self.clock)
            self.open_row[bank] = row
        if command == PRE:
            del self.open_row[bank]
        if command == PREA:
            self.open_row.clear()

    def note(self, command, bank):
        self.last[BANK, command, bank] = self.clock
        self.last[GROUP, command, bank // self.hbm.banks_per_group] = self.clock
        self.last[CHANNEL, command, 0] = self.clock

    # --- what enters

    def held(self, way):
        return sum(atom.entries(self.hbm) for atom in self.queue if atom.way == way)

    def accept(self):
        passed = set()
        now_ps = self.clock * self.period_ps
        while True:
            first = [self.accesses[fifo[0]] for fifo in self.fifos if fifo]
            heads = {
                access.enters_by(): access
                for access in first
                if access.ready_ps <= now_ps and access.enters_by() not in passed
            }
            if not heads:
                return
            if self.hbm.arbiter == Arbiter.ROUND_ROBIN and self.keeps_turn(heads):
                stream = self.last_stream
            elif self.hbm.arbiter == Arbiter.ROUND_ROBIN:
                stream = min(heads, key=lambda s: (s - self.last_stream - 1) % 4)
            else:
                stream = min(heads, key=lambda s: (heads[s].ready_ps, s))
            access = heads[stream]
            way = READS if access.op == Op.READ else WRITES
            halves = [half for half in (0, 1) if access.sectors >> (2 * half) & 3]
            atoms = [Atom(self.hbm, access, self.fifo_of(stream)[0], half, self.clock) for half in halves]
            held = self.held(way) if self.split else self.held(READS) + self.held(WRITES)
            if held + sum(atom.entries(self.hbm) for atom in atoms) > self.hbm.queue_entries:
                passed |= {s for s in heads if not self.split or (heads[s].op == Op.READ) == (access.op == Op.READ)}
            elif any(old.place == new.place and old.way != way for old in self.queue for new in atoms):
                passed.add(stream)
            else:
                self.queue += atoms
                self.fifo_of(stream).pop(0)
                if stream != self.last_stream or len(self.turn) == self.hbm.turn_requests:
                    self.turn = []
                self.turn.append(access.line)
                self.last_stream = stream

    def fifo_of(self, stream):
        return self.fifos[stream // 2 * 2 if self.in_order else stream]

    def keeps_turn(self, heads):
        if self.last_stream not in heads:
            return False
        if self.hbm.turn == Turn.BURST:
            return len(self.turn) < self.hbm.turn_requests
        groups = {BankMap.BG: self.hbm.bank_groups, BankMap.SG: min(2, self.hbm.bank_groups)}
        neighbours = self.hbm.row_bytes * groups.get(self.hbm.bank_map, 1)
        same_row = heads[self.last_stream].line // neighbours == self.turn[-1] // neighbours
        return self.hbm.turn == Turn.ROW and same_row

    # --- what issues

    def choose_mode(self):
        if self.age_limit and self.aged is None and self.queue[0].clock + self.age_limit <= self.clock:
            self.aged = self.queue[0]
        self.ways = {READS, WRITES}
        self.row_ways = {READS, WRITES}
        if not self.split:
            if self.aged and self.open_row.get(self.aged.bank) == self.aged.row:
                self.ways = {self.aged.way}
            return
        reads, writes = self.held(READS), self.held(WRITES)
        held = any(self.waits_for_a_write(self.accesses[fifo[0]]) for fifo in self.fifos if fifo)
        drained = not writes or (writes < self.low and not held)
        mode = self.mode
        if self.aged:
            mode = self.aged.way
        elif mode == READS:
            full = writes > self.high or held
            if writes and (not reads or (full and self.phase_left <= 0)):
                mode = WRITES
        elif reads and (drained or self.phase_left <= 0):
            mode = READS
        if mode != self.mode:
            self.mode = mode
            self.phase_left = writes if mode == WRITES else 0 if drained else reads
        self.ways = self.row_ways = {mode}

    def waits_for_a_write(self, access):
        if access.op != Op.READ or access.ready_ps > self.clock * self.period_ps:
            return False
        places = {access.line // 64 + half for half in (0, 1) if access.sectors >> (2 * half) & 3}
        return any(atom.way == WRITES and atom.place in places for atom in self.queue)

    def hits(self, atom):
        return self.open_row.get(atom.bank) == atom.row

    def kept_for_aged(self, bank):
        return self.aged and self.aged.bank == bank and self.open_row.get(bank) not in (None, self.aged.row)

    def column(self):
        seen = set()
        for atom in self.queue:
            if atom.way in self.ways and self.hits(atom) and (atom.bank, atom.way) not in seen:
                seen.add((atom.bank, atom.way))
                if not self.kept_for_aged(atom.bank) and self.legal(COLUMN_OF[atom.op], atom.bank):
                    self.issue(COLUMN_OF[atom.op], atom.bank, atom.row, atom.columns.pop(0), atom.tag)
                    self.phase_left -= self.hbm.column_bytes // 32
                    if not atom.columns:
                        self.queue.remove(atom)
                        if atom is self.aged:
                            self.aged = None
                    return

    def row(self):
        busy = {atom.bank for atom in self.queue if atom.way in self.row_ways and self.hits(atom)}
        for atom in self.queue:
            bank = atom.bank
            if atom.way not in self.row_ways or self.hits(atom) or (bank in busy and not self.kept_for_aged(bank)):
                continue
            command = PRE if bank in self.open_row else ACT
            if self.legal(command, bank):
                self.issue(command, bank, atom.row if command == ACT else -1)
                return
        self.close_page()

    def close_page(self):
        if self.hbm.page == PagePolicy.OPEN:
            return
        for bank in sorted(self.open_row):
            if not any(atom.bank == bank and self.hits(atom) for atom in self.queue) and self.legal(PRE, bank):
                self.issue(PRE, bank)
                return

    # --- refresh

    def owed(self):
        return self.clock // self.hbm.timing.REFI - self.refreshes if self.hbm.timing.REFI else 0

    def when_idle(self):
        if self.owed() > 0:
            self.refresh()
        else:
            self.close_page()

    def refresh(self):
        if self.open_row:
            if all(self.legal(PRE, bank) for bank in self.open_row):
                self.issue(PREA, -1)
        elif self.legal(REF, 0) and all(self.rc_over(bank) for bank in range(self.banks())):
            self.issue(REF, -1)
            self.refreshes += 1

    def banks(self):
        return self.hbm.bank_groups * self.hbm.banks_per_group

    def rc_over(self, bank):
        """tRC since the bank's last ACT: the only same-bank rule of ACT that a refresh must wait for besides tRP."""
        return self.clock - self.last[BANK, ACT, bank] >= self.hbm.timing.RC


def names(log):
    """A log with command names, for messages."""
    return [(time, Command(command).name, *rest) for time, command, *rest in log]
