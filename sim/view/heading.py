"""What a result hangs on, in a few lines: links, network, MCA, GEMM kernel, how many values are assumed, and how far
such results are from measurements."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sim.collective.topology import in_one_node
from sim.hw.request import LINE_BYTES
from sim.presets import Preset, assumed, borrowed, measured
from sim.results import ResultsArchive, RunResult
from sim.spec import Arbiter, Link, Network
from tracer.gemm.source import GemmKernel
from traces.units import GIGA, bytes_per_s, time_text

SHAPE = ("tile_m", "tile_n", "tile_k", "warps_m", "warps_n")
NAMED = ("pipeline_depth", "copy", "epilogue", "order")
"""Fields of a GEMM kernel that the heading names, after its shape; others where they are not the default."""


def origins_text(preset: Preset) -> str:
    """Number of assumed and of borrowed values of a preset, and the command that lists them."""
    units = dict.fromkeys(field.partition(".")[0] for field in borrowed(preset))
    lent = f"{len(borrowed(preset))} more are borrowed from the machine of the T3 paper: {', '.join(units)}\n"
    return (
        f"{len(assumed(preset))} of {len(preset.sources)} values of {preset.name} are assumed\n{lent if units else ''}"
        f"t3sim presets {preset.name} --assumed lists them"
    )


def measured_text(preset: Preset) -> str:
    """How far times on the unchanged machine are from measured and published ones, a line for each quantity."""
    lines = [f"    {row.error} ({row.page})" for row in measured(preset.name)]
    if not lines:
        return f"no time on {preset.name} has been compared with a measurement"
    return "\n".join(["unchanged preset beside measured and published values (validation/tables):", *lines])


def evidence_text(preset: Preset) -> str:
    """What times on a machine hang on, and how far they are from measurements."""
    return f"{origins_text(preset)}\n{measured_text(preset)}"


def is_of_gpu_0(runs: Iterable[RunResult]) -> bool:
    """Are the counters those of GPU 0, while others were simulated, too? Of all GPUs a run keeps the traffic only."""
    return any(run.figures.get("simulated_gpus", 1) > 1 for run in runs)


def links_text(preset: Preset, gpus: int, own_plan: bool = False) -> str:
    """Topology, rate and latency of the links and of the network, the thresholds of MCA, and the kinds of their values.

    A link whose credits do not suffice for its rate says so. The network is named if not all GPUs are in one node.
    own_plan: a plan of the user says which GPUs the links connect.
    """
    link, mca, network = preset.machine.link, preset.machine.mca, preset.machine.network
    topology = "those of the plan" if own_plan else link.topology.name.lower().replace("_", " ")
    fixed = preset.machine.hbm.arbiter == Arbiter.MCA_FIXED
    limits = f"{mca.threshold}" if fixed else f"{mca.strict}, {mca.medium}, {mca.loose}"
    lines = [f"link: {topology}, {_rate(link)} ({_kinds(preset, 'link')})"]
    if not in_one_node(preset.machine, gpus):
        nodes = f"nodes of {network.node_gpus} GPU{'s' if network.node_gpus > 1 else ''}"
        lines.append(f"network: {nodes}, {_rate(network)} ({_kinds(preset, 'network')})")
    return "\n".join([*lines, f"MCA: thresholds {limits} entries ({_kinds(preset, 'mca')})"])


def _rate(link: Link | Network) -> str:
    """Rate and latency, e.g. "150 GB/s each way, 500 ns"."""
    rate = f"{link.GB_per_s:g} GB/s each way"
    most_GB_per_s = bytes_per_s(link.credits * LINE_BYTES, 2 * link.latency_ps) / GIGA
    if most_GB_per_s < link.GB_per_s * link.efficiency:
        rate += f", at most {most_GB_per_s:.0f} GB/s with {link.credits:,} credits"
    return f"{rate}, {time_text(link.latency_ps)}"


def _kinds(preset: Preset, unit: str) -> str:
    """Number of values of a unit by kind, e.g. "7 values: 4 paper, 3 assumed"."""
    kinds = Counter(source.kind for field, source in preset.sources.items() if field.startswith(f"{unit}."))
    return f"{kinds.total()} values: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def gemm_text(described: Mapping[str, Any]) -> str:
    """The kernel of a GEMM (`sim.run.inputs.gemm_input`): tile, warps, pipeline, and the number of default values."""
    kernel = described["kernel"]
    default = {name: _plain(value) for name, value in vars(GemmKernel()).items()}
    given = [name for name in kernel if kernel[name] != default.get(name)]
    parts = [f"tile {kernel['tile_m']} x {kernel['tile_n']} x {kernel['tile_k']}"]
    parts.append(f"{kernel['warps_m']} x {kernel['warps_n']} warps")
    parts += [f"{name.replace('_', ' ')} {kernel[name]}" for name in NAMED]
    parts += [f"{name} {kernel[name]}" for name in given if name not in (*SHAPE, *NAMED, "start_tile")]
    return (
        f"GEMM kernel: {', '.join(parts)}\n"
        f"    ({len(kernel) - len(given)} of its {len(kernel)} values are defaults, which are assumed)"
    )


def _plain(value: Any) -> Any:
    return value.name.lower() if hasattr(value, "name") else value


def run_heading(run: RunResult) -> list[str]:
    """Lines of a run or scenario: links, network and MCA where it has several GPUs, and the kernel of a GEMM."""
    gpus, own_plan = run.input.get("gpus", 0), "plan_sha256" in run.input
    lines = links_text(run.preset, gpus, own_plan).splitlines() if gpus else []
    return lines + ([gemm_text(run.input)] if "problem" in run.input else [])


def runs_heading(archive: ResultsArchive) -> list[str]:
    """Lines of an archive of several runs: each different line of their headings once, and their machines."""
    runs = [run for _, run in archive.results()]
    lines = [line for run in runs for line in run_heading(run)]
    texts = (text(run.preset) for text in (origins_text, measured_text) for run in runs)
    return list(dict.fromkeys([*lines, *texts]))
