"""The constraint checker: proves a command log against JEDEC rules, knowing nothing of the scheduler.

It has its own table, its own address decoder, and compares every command with all commands before it in the longest
window. Groups as in hbm2.md: 1 pairs, 2 tFAW, 3 data bus, 4 bank state, 5 refresh count, 6 one row and one column
command per clock, 7 every request served exactly once and in order with older accesses to its address.
(Groups 8 and 9, tightness and bounds, are tests of directed traffic.)
"""

from collections import defaultdict
from itertools import pairwise

from sim.hw.hbm.log import Command
from sim.hw.request import Op
from sim.spec import BankHash, BankMap, UpdateScope

ACT, PRE, PREA, RD, WR, UPD, REF = (int(command) for command in Command)
COLUMNS = (RD, WR, UPD)
STORES = (WR, UPD)
BANK, GROUP, CHANNEL = "bank", "group", "channel"


def rules(hbm):
    """Rows (level, first, then, clocks): `then` is illegal sooner than `clocks` after `first` at that level."""
    t = hbm.timing
    read_to_write = max(t.RTW, t.CL + t.burst - t.WL)
    stored = t.WL + t.burst
    table = [
        (BANK, ACT, RD, t.RCD_rd),
        (BANK, ACT, PRE, t.RAS),
        (BANK, ACT, ACT, t.RC),
        (BANK, PRE, ACT, t.RP),
        (BANK, RD, PRE, t.RTP),
        (GROUP, RD, RD, t.CCD_L),
        (GROUP, ACT, ACT, t.RRD_L),
        (CHANNEL, RD, RD, t.CCD_S),
        (CHANNEL, ACT, ACT, t.RRD_S),
        (CHANNEL, PRE, REF, t.RP),
        (CHANNEL, REF, ACT, t.RFC),
        (CHANNEL, REF, REF, t.RFC),
    ]
    for store in STORES:
        table += [
            (BANK, ACT, store, t.RCD_wr),
            (BANK, store, PRE, stored + t.WR),
            (GROUP, store, RD, stored + t.WTR_L),
            (CHANNEL, store, RD, stored + t.WTR_S),
            (CHANNEL, RD, store, read_to_write),
        ]
        for other in STORES:
            table += [(GROUP, store, other, t.CCD_L), (CHANNEL, store, other, t.CCD_S)]
    level = {UpdateScope.BANK: BANK, UpdateScope.SAME_GROUP: GROUP, UpdateScope.CHANNEL: CHANNEL}
    if hbm.update_scope != UpdateScope.OFF:
        table.append((level[hbm.update_scope], UPD, UPD, t.CCDWL))
    return table


def decode(hbm, local):
    """(bank, row, column) of a channel-local byte address, by division; then the digits of the row move the bank."""
    bank, row, column = unhashed(hbm, local)
    banks, digits = hbm.bank_groups * hbm.banks_per_group, row
    while hbm.bank_hash == BankHash.XOR and digits:
        digits, digit = divmod(digits, banks)
        bank ^= digit
    return bank, row, column


def unhashed(hbm, local):
    """`decode` before the hash of the row."""
    if hbm.bank_map == BankMap.RO:
        rest, byte = divmod(local, hbm.row_bytes)
        rest, bank = divmod(rest, hbm.banks_per_group)
        row, group = divmod(rest, hbm.bank_groups)
        return group * hbm.banks_per_group + bank, row, byte // 32
    if hbm.bank_map == BankMap.RG:
        rest, byte = divmod(local, hbm.row_bytes)
        rest, group = divmod(rest, hbm.bank_groups)
        row, bank = divmod(rest, hbm.banks_per_group)
        return group * hbm.banks_per_group + bank, row, byte // 32
    if hbm.bank_map == BankMap.SG:
        rest, byte = divmod(local, 256)
        rest, lower = divmod(rest, 2)
        rest, chunk = divmod(rest, hbm.row_bytes // 256)
        rest, upper = divmod(rest, hbm.bank_groups // 2)
        row, bank = divmod(rest, hbm.banks_per_group)
        return (2 * upper + lower) * hbm.banks_per_group + bank, row, chunk * 8 + byte // 32
    atom, byte = divmod(local, 64)
    rest, group = divmod(atom, hbm.bank_groups)
    rest, column = divmod(rest, hbm.row_bytes // 64)
    row, bank = divmod(rest, hbm.banks_per_group)
    return group * hbm.banks_per_group + bank, row, column * 2 + byte // 32


def check(hbm, log, accesses, accepted_ps, end_ps):
    """Violations found in a command log, as text; an empty list when there are none.

    Args:
        hbm: spec of the channel.
        log: records of LOG in order.
        accesses, accepted_ps: the requests and when each entered the queue.
        end_ps: the channel was watched until then.
    """
    period_ps = round(1e6 / hbm.clock_MHz)
    commands = [
        (int(entry["time_ps"]), int(entry["command"]), int(entry["bank"]), int(entry["row"]), int(entry["column"]))
        for entry in log
    ]
    found = [f"1 off the clock: {entry}" for entry in commands if entry[0] % period_ps]
    clocked = [(time // period_ps, *rest) for time, *rest in commands]
    found += _order(clocked)
    found += _pairs(hbm, clocked) + _four_activates(hbm, clocked) + _bus(hbm, clocked) + _state(hbm, clocked)
    found += _refresh_count(hbm, clocked, end_ps // period_ps) + _per_clock(clocked)
    return found + _service(hbm, log, accesses, accepted_ps)


def _order(commands):
    return [f"log goes back in time at {b}" for a, b in pairwise(commands) if b[0] < a[0]]


def _expanded(hbm, commands):
    """PREA as a PRE of every bank (those that are closed do not matter to any rule)."""
    for clock, command, bank, row, _ in commands:
        if command == PREA:
            yield from ((clock, PRE, each, row) for each in range(hbm.bank_groups * hbm.banks_per_group))
        else:
            yield clock, command, bank, row


def _pairs(hbm, commands):
    table = defaultdict(list)
    for level, first, then, clocks in rules(hbm):
        table[first, then].append((level, clocks))
    window = max(clocks for *_, clocks in rules(hbm))
    found = []
    history = []
    for entry in _expanded(hbm, commands):
        clock, command, bank, _ = entry
        for earlier in reversed(history):
            if clock - earlier[0] >= window:
                break
            for level, clocks in table[earlier[1], command]:
                if clock - earlier[0] < clocks and _same(hbm, level, bank, earlier[2]):
                    found.append(
                        f"1 {Command(command).name} {clock - earlier[0]} < {clocks} after {earlier} in {level}"
                    )
        history.append(entry)
    return found


def _same(hbm, level, bank, other):
    if level == BANK:
        return bank == other
    return level == CHANNEL or bank // hbm.banks_per_group == other // hbm.banks_per_group


def _four_activates(hbm, commands):
    clocks = [entry[0] for entry in commands if entry[1] == ACT]
    return [
        f"2 five ACT in {fifth - first} < tFAW at {fifth}"
        for first, fifth in zip(clocks, clocks[4:], strict=False)
        if fifth - first < hbm.timing.FAW
    ]


def _bus(hbm, commands):
    t = hbm.timing
    bursts = sorted(entry[0] + (t.CL if entry[1] == RD else t.WL) for entry in commands if entry[1] in COLUMNS)
    return [f"3 bursts at {a} and {b} overlap" for a, b in pairwise(bursts) if b - a < t.burst]


def _state(hbm, commands):
    open_row = {}
    found = []
    for clock, command, bank, row, _ in commands:
        if command == ACT:
            if bank in open_row:
                found.append(f"4 ACT on open bank {bank} at {clock}")
            open_row[bank] = row
        elif command == PRE:
            if open_row.pop(bank, None) is None:
                found.append(f"4 PRE on closed bank {bank} at {clock}")
        elif command == PREA:
            open_row.clear()
        elif command == REF:
            if open_row:
                found.append(f"4 REF with open banks {sorted(open_row)} at {clock}")
        elif open_row.get(bank) != row:
            found.append(
                f"4 {Command(command).name} on row {row}, open is {open_row.get(bank)}, bank {bank} at {clock}"
            )
    return found


def _refresh_count(hbm, commands, end_clock):
    t = hbm.timing
    done = [entry[0] for entry in commands if entry[1] == REF]
    if t.REFI == 0:
        return [f"5 REF without refresh at {done[0]}"] if done else []
    closing = max(t.RAS, t.RTP, t.WL + t.burst + t.WR) + t.RP + 2  # rows are closed first
    found = []
    for number in range(1, max(len(done), end_clock // t.REFI) + 1):
        latest = (number + hbm.refresh_postpone) * t.REFI + closing
        if number > len(done):
            if latest < end_clock:
                found.append(f"5 refresh {number} missing, due {number * t.REFI}, latest {latest}")
        elif not number * t.REFI <= done[number - 1] <= latest:
            found.append(f"5 refresh {number} at {done[number - 1]}, allowed {number * t.REFI} to {latest}")
    return found


def _per_clock(commands):
    seen = set()
    found = []
    for clock, command, *_ in commands:
        bus = (clock, command in COLUMNS)
        if bus in seen:
            found.append(f"6 two {'column' if bus[1] else 'row'} commands at {clock}")
        seen.add(bus)
    return found


def _service(hbm, log, accesses, accepted_ps):
    wanted = {int(Op.READ): RD, int(Op.WRITE): WR, int(Op.UPDATE): UPD}
    expected = defaultdict(int)
    for tag, access in enumerate(accesses):
        for sector in range(4):
            if access.sectors >> sector & 1:
                column = access.line + 32 * sector
                expected[tag, wanted[access.op], column // hbm.column_bytes * hbm.column_bytes] |= 1
    served = defaultdict(int)
    column_of = {(key[0], key[1], *decode(hbm, key[2])): key for key in expected}
    at_address = defaultdict(list)
    found = []
    for entry in log:
        if entry["command"] in COLUMNS:
            names = ("tag", "command", "bank", "row", "column")
            key = column_of.get(tuple(int(entry[name]) for name in names))
            if key is None:
                found.append(f"7 a column that nobody asked for: {entry}")
                continue
            served[key] += 1
            at_address[key[2]].append((accepted_ps[key[0]], key[1] == RD, key))
    found += [f"7 {key} served {served[key]} times" for key in expected if served[key] != 1]
    for order in at_address.values():
        for place, (accepted, reads, key) in enumerate(order):
            for earlier, was_read, other in order[:place]:
                if earlier > accepted and reads != was_read:
                    found.append(f"7 {other} overtook {key}")
    return found
