"""Changes of a machine that `t3sim explain` tries: one for each unit, for latencies, and for assumed values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sim.collective.topology import in_one_node
from sim.presets import Preset, preset_from_dict
from sim.presets.preset import BORROWED, OVERRIDE
from sim.run.shares import LATENCY, TOO_FEW
from traces.errors import UserError

HALF, TWICE = 0.5, 2.0


@dataclass(frozen=True)
class Change:
    """A change of the machine.

    Attributes:
        title: for people.
        factors: dotted field -> factor of its value.
        unit: whose work takes half of the time, of `sim.run.shares.shares`, or LATENCY, TOO_FEW; "" = no unit.
    """

    title: str
    factors: Mapping[str, float]
    unit: str = ""


FASTER = (
    Change("matrix pipes twice as fast", {"cu.tensor_macs_per_clk": TWICE}, "matrix pipes"),
    Change("ALUs twice as fast", {"cu.alu_warps_per_clk": TWICE}, "ALU"),
    Change("fp32 pipes twice as fast", {"cu.fma_warps_per_clk": TWICE}, "FMA"),
    Change("fp64 pipes twice as fast", {"cu.fp64_warps_per_clk": TWICE}, "FP64"),
    Change("pipes of transcendental functions twice as fast", {"cu.sfu_warps_per_clk": TWICE}, "SFU"),
    Change(
        "vector pipes twice as fast",
        {f"cu.{pipe}_warps_per_clk": TWICE for pipe in ("alu", "fma", "fp64", "sfu")},
        "VALU",
    ),
    Change("twice as many instructions issued", {"cu.issue_per_clk": TWICE}, "issue"),
    Change("shared memory twice as fast", {"cu.shared_bytes_per_clk": TWICE}, "shared memory"),
    Change("load/store units twice as fast", {"cu.lsu_lines_per_clk": TWICE, "cu.lsu_tags_per_clk": TWICE}, "LSU"),
    Change("bulk copy units twice as fast", {"cu.bulk_lines_per_clk": TWICE}, "bulk copies"),
    Change("ports between CUs twice as wide", {"cu.peer_bytes_per_clk": TWICE}, "ports between CUs"),
    Change("NoC ports to CUs twice as wide", {"noc.response_bytes_per_clk": TWICE}, "NoC to CUs"),
    Change("NoC ports to L2 twice as wide", {"noc.request_bytes_per_clk": TWICE}, "NoC to L2"),
    Change("ports of L2 banks twice as wide", {"noc.bank_bytes_per_clk": TWICE}, "L2"),
    Change("DRAM at twice its clock", {"hbm.clock_MHz": TWICE}, "DRAM"),
    Change("links twice as fast", {"link.GB_per_s": TWICE}, "link"),
    Change("network cards twice as fast", {"network.GB_per_s": TWICE}, "network"),
    Change("workgroups dispatched twice as fast", {"dispatch.workgroup_ps": HALF}, "dispatcher"),
    Change("memory-side cache twice as fast", {"msc.lines_per_clk": TWICE}, "memory-side cache"),
    Change("DMA engines twice as fast", {"dma.lines_per_clk": TWICE}, "DMA engines"),
)
"""One change for each unit that can be busy."""
UNCOUNTED = {
    ("l2.atomic_sectors",): Change("atomics on one address twice as fast", {"l2.atomics_per_clk": TWICE}, "atomics"),
    ("far.far_requests", "far.far_answers"): Change(
        "ports between partitions twice as wide", {"l2.far_bytes_per_clk": TWICE}, "ports between partitions"
    ),
    ("cu.tensor_held_ps",): Change(
        "matrix pipes held up half as long", {"cu.tensor_hold": HALF}, "matrix pipes held up"
    ),
    ("l2.blocked_ps",): Change(
        "twice as many requests that may wait for one line", {"l2.mshr_merges": TWICE}, "miss entries of L2"
    ),
}
"""Counters of which one says that a run uses a unit -> its change. How busy these units are is not counted."""
LATENCIES = Change(
    "half of the latency of memory",
    {"l2.latency_clk": HALF, "noc.latency_clk": HALF, "hbm.request_ps": HALF, "hbm.extra_latency_ps": HALF},
    LATENCY,
)
QUICKER = Change(
    "CUs and their ports twice as fast, half of the latency of memory",
    {"cu.clock_MHz": TWICE, "noc.response_bytes_per_clk": TWICE, "noc.request_bytes_per_clk": TWICE}
    | {**LATENCIES.factors},
    TOO_FEW,
)
"""What a workgroup alone takes half of the time with: the time of a run whose workgroups leave CUs idle."""
LAUNCH = Change("half of the launch delay", {"dispatch.launch_ps": HALF, "dispatch.gap_ps": HALF})
MORE_CUS = Change("twice as many CUs", {"cu.count": TWICE})
RESIDENT = Change(
    "room for twice as many workgroups on a CU",
    {
        "cu.registers_bytes": TWICE,
        "cu.shared_bytes": TWICE,
        "cu.warps": TWICE,
        "cu.workgroups": TWICE,
        "cu.threads": TWICE,
    },
)
L2_SIZE = Change("twice the size of L2", {"l2.bytes": TWICE})
STEPS = Change("half of the delays of a collective", {"collective.launch_ps": HALF, "collective.step_ps": HALF})
LINK_LATENCY = Change("half of the latency of links", {"link.latency_ps": HALF}, LATENCY)
NETWORK_LATENCY = Change(
    "half of the latency of links and network", {"link.latency_ps": HALF, "network.latency_ps": HALF}, LATENCY
)
ON_ONE_GPU = (LATENCIES, L2_SIZE, RESIDENT, LAUNCH, MORE_CUS)
ON_MANY_GPUS = (LINK_LATENCY, STEPS, *ON_ONE_GPU)
ON_NODES = (NETWORK_LATENCY, STEPS, *ON_ONE_GPU)
ASSUMED_FIRST = (
    *("network.latency_ps", "network.GB_per_s", "network.efficiency"),
    *("link.latency_ps", "link.efficiency", "collective.step_ps", "collective.launch_ps", "dma.setup_ps"),
    *("tracker.latency_ps", "mca.strict", "mca.medium", "dma.outstanding", "link.credits", "l2.mshr_merges"),
    *("hbm.queue_entries", "hbm.extra_latency_ps", "hbm.request_ps", "noc.latency_clk", "l2.latency_clk"),
    *("cu.loads_outstanding", "noc.response_bytes_per_clk", "noc.bank_bytes_per_clk", "l2.mshrs", "l1.mshrs"),
    *("dispatch.launch_ps", "dispatch.workgroup_ps", "noc.bank_fifo", "noc.cu_fifo"),
)
"""Fields whose values are often assumed, those first on which results depended most (validation/DEVIATIONS.md)."""


def changed(preset: Preset, factors: Mapping[str, float]) -> tuple[Preset, dict[str, tuple[Any, Any]]]:
    """A machine with changed values, and field -> (old, new) of the values that differ.

    Raises:
        UserError: the values do not fit each other or their bounds, or nothing changes.
    """
    stored = preset.as_dict()
    found = {}
    for field, factor in factors.items():
        old = stored["fields"][field]["value"]
        new = old * factor if isinstance(old, float) else round(old * factor)
        if new != old:
            stored["fields"][field] = {"value": new, "kind": OVERRIDE, "source": "changed by t3sim explain"}
            found[field] = (old, new)
    if not found:
        raise UserError(f"{', '.join(factors)}: the factor changes no value")
    return replace(preset_from_dict(stored), name=preset.name), found


def assumed_changes(preset: Preset, gpus: int) -> Iterator[Change]:
    """Half of each assumed or borrowed value of ASSUMED_FIRST that a run on so many GPUs uses."""
    joined, values = ("link.", "collective.", "dma.", "tracker.", "mca."), preset.values()
    unused = (*(joined if gpus == 1 else ()), *(["network."] if in_one_node(preset.machine, gpus) else []))
    for field in ASSUMED_FIRST:
        doubtful = preset.sources[field].kind in ("assumed", BORROWED) and values[field] > 0
        if doubtful and not field.startswith(unused):
            yield Change(field, {field: HALF})
