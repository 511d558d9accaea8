"""The scoreboard kernel against a naive Python twin that keeps dictionaries, on random instruction streams."""

import numpy as np
import pytest

from tests.support.accelsim_texts import kernel_text, read, write
from traces.schema import NO_SLOT, SLOTS, Kind


class Twin:
    """Pending registers and slots, as sets."""

    def __init__(self):
        self.of_register = {}  # register -> slot
        self.order = []  # busy slots, oldest first
        self.group_of = {}  # slot -> number of its committed copy group
        self.open = None
        self.committed = 0

    def wait(self, slots):
        for slot in slots:
            self.order.remove(slot)
            self.group_of.pop(slot, None)
            self.of_register = {r: s for r, s in self.of_register.items() if s != slot}
            if self.open == slot:
                self.open = None

    def take(self, waits):
        free = sorted(set(range(SLOTS)) - set(self.order))
        if free:
            slot = free[0]
        else:
            slot = next(s for s in self.order if s != self.open)
            self.wait([slot])
            waits.add(slot)
        self.order.append(slot)
        return slot

    def step(self, action):
        """(kind, slot, waits) of an action; kind None for arithmetic."""
        name, dst, dst_regs, sources = action
        touched = [r for first, count in sources for r in range(first, first + count)]
        touched += list(range(dst, dst + dst_regs)) if dst is not None else []
        waits = {self.of_register[r] for r in touched if r in self.of_register}
        if name == "depbar":
            waits |= {slot for slot, group in self.group_of.items() if group < self.committed - sources[0][0]}
        self.wait(waits)
        slot = NO_SLOT
        if name == "load":
            slot = self.take(waits)
            self.of_register.update(dict.fromkeys(range(dst, dst + dst_regs), slot))
        elif name == "copy":
            if self.open is None:
                self.open = self.take(waits)
            slot = self.open
        elif name == "commit":
            if self.open is not None:
                self.group_of[self.open] = self.committed
            self.open = None
            self.committed += 1
        return slot, waits


def random_actions(rng, count, registers):
    """Actions of the twin, and their lines."""
    actions, lines = [], []
    for k in range(count):
        pc = f"{16 * k:04x} ffffffff"
        name = rng.choice(["load", "add", "store", "copy", "commit", "depbar"], p=[0.45, 0.2, 0.1, 0.15, 0.05, 0.05])
        dst = int(rng.integers(4, registers))
        first = int(rng.integers(4, registers))
        width = int(rng.choice([4, 8, 16]))
        token = {4: "", 8: ".64", 16: ".128"}[width]
        if name == "load":
            actions.append((name, dst, width // 4, [(first, 2)]))
            lines.append(f"{pc} 1 R{dst} LDG.E{token} 1 R{first} {width} 1 0x7f4000000000 {width} 0 ")
        elif name == "add":
            actions.append((name, dst, 1, [(first, 1)]))
            lines.append(f"{pc} 1 R{dst} IADD3 1 R{first} 0 0 ")
        elif name == "store":
            actions.append((name, None, 0, [(2, 2), (first, width // 4)]))
            lines.append(f"{pc} 0 STG.E{token} 2 R2 R{first} {width} 1 0x7f4000000000 {width} 0 ")
        elif name == "copy":
            actions.append((name, None, 0, [(first, 1), (2, 2)]))
            lines.append(f"{pc} 0 LDGSTS.E.128 2 R{first} R2 16 1 0x7f4000000000 16 0 ")
        elif name == "commit":
            actions.append((name, None, 0, []))
            lines.append(f"{pc} 0 LDGDEPBAR 0 0 0 ")
        else:
            latest = int(rng.integers(0, 3))
            actions.append((name, None, 0, [(latest, 0)]))
            lines.append(f"{pc} 0 DEPBAR.LE 0 0 {latest} ")
    return actions, lines


@pytest.mark.parametrize(("seed", "registers"), [(1, 12), (2, 60), (3, 250), (4, 250), (5, 30)])
def test_slots_and_waits_equal_the_twins(tmp_path, seed, registers):
    rng = np.random.default_rng(seed)
    actions, lines = random_actions(rng, 600, registers)
    lines.append("f000 ffffffff 0 EXIT 0 0 0 ")
    workgroups, _ = read(write(tmp_path, kernel_text([lines])))
    events = workgroups[0].events
    assert events["count"].sum() == len(lines)
    twin = Twin()
    expected = []  # (pc, slot, waits) of every event that is no mere arithmetic
    waiting_arithmetic = []
    for k, action in enumerate(actions):
        slot, waits = twin.step(action)
        mask = sum(1 << s for s in waits)
        if action[0] == "add" or (action[0] == "depbar" and not waits):
            if waits:
                waiting_arithmetic.append((16 * k, mask))
        else:
            expected.append((16 * k, slot, mask))
    others = events[(events["kind"] != Kind.COMPUTE) & (events["kind"] != Kind.EXIT)]
    assert [(int(e["pc"]), int(e["slot"]), int(e["wait"])) for e in others] == expected
    compute = events[(events["kind"] == Kind.COMPUTE) & (events["wait"] != 0)]
    assert [(int(e["pc"]), int(e["wait"])) for e in compute] == waiting_arithmetic
