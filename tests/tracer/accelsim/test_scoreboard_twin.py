"""The scoreboard kernel against a naive Python twin that keeps dictionaries, on random instruction streams."""

import numpy as np
import pytest

from tests.support.accelsim_texts import kernel_text, read, write
from tests.support.random_instructions import random_actions
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
