"""Every number of a machine at its lowest, its highest and a random allowed value, on a small GEMM and a small T3.

    python -m tests.support.fuzz --fields --out found --seed 1

A run must end within a time limit: with a result in which every sum counts exactly once, or with one line, before the
run, that names the field.
"""

import json
from typing import NamedTuple

import numpy as np

from sim.presets import load_preset
from sim.presets.bounds import BOUNDS
from sim.presets.load import machine_fields
from tests.support.programs import SMALL
from traces.errors import UserError

PRESET = "t3_2024"
GEMM = ("run", "--preset", PRESET, "--fresh", "--json", "--kernel", "gemm:m=64,n=64,k=32,tile=32x32x16,warps=1x1")
T3 = ("t3", "--preset", PRESET, "--fresh", "--json", "--explicit", "--gpus", "4", "--configuration", "Sequential",
      "--configuration", "T3-MCA", "--configuration", "Ideal-RS+NMC",
      "--kernel", "gemm:m=128,n=128,k=32,tile=32x32x16,warps=2x2")  # fmt: skip
RUNS = {"gemm": GEMM, "t3": T3}
HALVES = {"l2.partitions": 2, "l2.sharing": "copies", "l2.far_latency_clk": 20, "noc.clock_MHz": 1000}
STORING = {"msc.present": True, "msc.bytes": 1 << 16}
COMPANIONS = {
    "cu.warps": lambda v: {"cu.threads": v * 32, "cu.schedulers": 1, "collective.warps": min(v, 8)},
    "cu.threads": lambda v: {"cu.warps": 64, "cu.lanes_per_warp": 64 if v > 2048 else 32},
    "cu.schedulers": lambda v: {"cu.warps": 8 * v, "cu.threads": 256 * v},
    "cu.tensor_macs_per_clk": lambda v: {"cu.schedulers": 1},
    "cu.shared_bytes": lambda v: {"l1.unified_with_shared": False},
    "l1.bytes": lambda v: {"l1.unified_with_shared": False, "l1.ways": min(16, max(1, v // 128))},
    "l1.ways": lambda v: {"l1.unified_with_shared": False, "l1.bytes": 4096 * v},
    "l2.bytes": lambda v: (
        {"l2.banks": 2, "l2.ways": 1} if v >= 256 else {"l2.banks": 1, "l2.ways": 1, "hbm.channels": 1}
    ),
    "l2.banks": lambda v: {"hbm.channels": 1, "l2.bytes": v * 16 * 128 * 4},
    "l2.ways": lambda v: {"l2.bytes": v * 128 * 4 * 8},
    "l2.partitions": lambda v: {
        "l2.sharing": "private",
        "cu.count": v,
        "l2.banks": v,
        "l2.bytes": v * 16 * 128 * 4,
        "hbm.channels": 1,
    },
    "l2.far_latency_clk": lambda v: HALVES,
    "l2.far_bytes_per_clk": lambda v: HALVES,
    **{f"msc.{name}": lambda v: STORING for name in ("fifo", "latency_clk", "clock_MHz", "lines_per_clk")},
    "msc.bytes": lambda v: {"msc.present": True, "msc.ways": 1},
    "msc.ways": lambda v: STORING | {"msc.bytes": v * 128 * 2 * 4, "msc.write_back": True},
    "msc.mshrs": lambda v: STORING,
    "msc.mshr_merges": lambda v: STORING,
    "hbm.channels": lambda v: {"l2.banks": v, "l2.bytes": v * 16 * 128 * 8, "hbm.capacity_bytes": v << 25},
    "hbm.bank_groups": lambda v: {"hbm.banks_per_group": 64 // v},
    "hbm.banks_per_group": lambda v: {"hbm.bank_groups": 64 // v},
    "hbm.write_high": lambda v: {"hbm.queue": "split", "hbm.write_low": 0.0},
    "hbm.write_low": lambda v: {"hbm.queue": "split", "hbm.write_high": 1.0},
    "hbm.queue_entries": lambda v: {"hbm.queue": "unified"},
    "hbm.timing.RP": lambda v: {"hbm.timing.RC": 1000, "hbm.timing.RAS": 0},
    "hbm.timing.RAS": lambda v: {"hbm.timing.RC": 1000, "hbm.timing.RP": 0},
    "hbm.timing.RC": lambda v: {"hbm.timing.RAS": v // 2, "hbm.timing.RP": v - v // 2},
    "hbm.timing.CCD_S": lambda v: {"hbm.timing.CCD_L": v},
    "hbm.timing.CCD_L": lambda v: {"hbm.timing.CCD_S": 0},
    "hbm.timing.RRD_S": lambda v: {"hbm.timing.RRD_L": v, "hbm.timing.FAW": v},
    "hbm.timing.RRD_L": lambda v: {"hbm.timing.RRD_S": 0, "hbm.timing.FAW": v},
    "hbm.timing.FAW": lambda v: {"hbm.timing.RRD_S": 0, "hbm.timing.RRD_L": 0},
    "hbm.timing.WTR_S": lambda v: {"hbm.timing.WTR_L": v},
    "hbm.timing.WTR_L": lambda v: {"hbm.timing.WTR_S": 0},
    "hbm.timing.RFC": lambda v: {"hbm.timing.REFI": v + 200},
    "hbm.refresh_postpone": lambda v: {"hbm.timing.REFI": 460},
    "noc.latency_clk": lambda v: {"noc.clock_MHz": 1000},
    **{
        f"network.{name}": lambda v: {"network.node_gpus": 2}
        for name in ("GB_per_s", "efficiency", "latency_ps", "header_bytes", "credits")
    },
    "tracker.entries": lambda v: {"tracker.ways": 1024 if v > 4096 else 1},
    "tracker.ways": lambda v: {"tracker.entries": v},
    "mca.strict_from": lambda v: {"mca.medium_from": 0.0, "mca.loose_from": 0.0},
    "mca.medium_from": lambda v: {"mca.strict_from": 1.0, "mca.loose_from": 0.0},
    "mca.loose_from": lambda v: {"mca.strict_from": 1.0, "mca.medium_from": 1.0},
}
"""Field -> other values that let it have its lowest or highest value."""


class Case(NamedTuple):
    """A run with one field at one value.

    Attributes:
        run: one of RUNS.
        field, value: of the machine.
        settings: field -> value, that the machine differs in.
    """

    run: str
    field: str
    value: float
    settings: dict

    @property
    def words(self):
        """Of the command line."""
        return [*RUNS[self.run], *(word for text in overrides(self.settings) for word in ("--set", text))]


def overrides(settings):
    return [f"{field}={str(value).lower()}" for field, value in settings.items()]


def cases(seed):
    """All cases; the random values depend on the seed only."""
    random = np.random.default_rng(seed)
    for field, bound in BOUNDS.items():
        whole = machine_fields()[field] is int
        for value in dict.fromkeys((bound.least, bound.most, accepted(random, field, bound, whole))):
            for run in RUNS:
                yield Case(run, field, value, settings_of(field, value))


def mixed_cases(seed, count, fields=12):
    """Cases in which several numbers at once have their lowest, their highest or a random allowed value."""
    random = np.random.default_rng(seed)
    for number in range(count):
        settings = dict(text.split("=") for text in SMALL)
        for field in random.choice(list(BOUNDS), fields, replace=False):
            bound, whole = BOUNDS[field], machine_fields()[field] is int
            value = (bound.least, bound.most, accepted(random, field, bound, whole))[
                random.choice(3, p=(0.4, 0.4, 0.2))
            ]
            wider = settings | settings_of(field, value)
            if is_machine(wider):
                settings = wider
        for run in RUNS:
            yield Case(run, f"{fields} fields", number, settings)


def settings_of(field, value):
    small = dict(text.split("=") for text in SMALL)
    return small | COMPANIONS.get(field, lambda value: {})(value) | {field: value}


def accepted(random, field, bound, whole):
    """A random value that the rules allow, if one of a few is; small ones as likely as large ones."""
    value = bound.most
    for _ in range(100):
        low = max(bound.least, 1 if whole else bound.most / 1e6)
        value = float(np.exp(random.uniform(np.log(low), np.log(bound.most))))
        value = (
            min(max(1 << round(np.log2(value)) if random.random() < 0.3 else int(value), bound.least), bound.most)
            if whole
            else round(value, 4)
        )
        if is_machine(settings_of(field, value)):
            break
    return value


def is_machine(settings):
    try:
        load_preset(PRESET, overrides(settings))
    except UserError:
        return False
    return True


LATE = ("nothing can move", "without work", "not conserved", "not enough memory")
"""Words of a mistake that was found during the run only."""


def result_of(said):
    """The JSON object that a verb has printed, None = none."""
    first, last = said.find("{"), said.rfind("}")
    try:
        return json.loads(said[first : last + 1]) if first >= 0 else None
    except json.JSONDecodeError:
        return None


def what_is_wrong(found, said):
    """The same of a run that ended as a verb should (`found` is ""): "" = it is as it should be."""
    result = result_of(said)
    if found or result is None:
        return found or next((f"found too late: {word}" for word in LATE if word in said), "")
    wrong = [name for name, one in result.get("configurations", {}).items() if not one["ledger"]["exactly_once"]]
    return f"not exactly once: {', '.join(wrong)}" if wrong else ""
