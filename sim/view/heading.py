"""What a result hangs on, in a few lines: links, MCA, GEMM kernel, and how many of their values are assumed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sim.hw.request import LINE_BYTES
from sim.presets import Preset, assumed, borrowed
from sim.results import ResultsArchive, RunResult
from sim.spec import Arbiter
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


def is_of_gpu_0(runs: Iterable[RunResult]) -> bool:
    """Are the counters those of GPU 0, while others were simulated, too? Of all GPUs a run keeps the traffic only."""
    return any(run.figures.get("simulated_gpus", 1) > 1 for run in runs)


def links_text(preset: Preset, own_plan: bool = False) -> str:
    """Topology, rate and latency of the links, the thresholds of MCA, and the kinds of their values.

    A link whose credits do not suffice for its rate says so. own_plan: a plan of the user says which GPUs it connects.
    """
    link, mca = preset.machine.link, preset.machine.mca
    topology = "those of the plan" if own_plan else link.topology.name.lower().replace("_", " ")
    fixed = preset.machine.hbm.arbiter == Arbiter.MCA_FIXED
    limits = f"{mca.threshold}" if fixed else f"{mca.strict}, {mca.medium}, {mca.loose}"
    rate = f"{link.GB_per_s:g} GB/s each way"
    most_GB_per_s = bytes_per_s(link.credits * LINE_BYTES, 2 * link.latency_ps) / GIGA
    if most_GB_per_s < link.GB_per_s * link.efficiency:
        rate += f", at most {most_GB_per_s:.0f} GB/s with {link.credits:,} credits"
    return (
        f"link: {topology}, {rate}, {time_text(link.latency_ps)} ({_kinds(preset, 'link')})\n"
        f"MCA: thresholds {limits} entries ({_kinds(preset, 'mca')})"
    )


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
    """Lines of a run or scenario: links and MCA where it has several GPUs, and the kernel of a GEMM."""
    lines = links_text(run.preset, "plan_sha256" in run.input).splitlines() if "gpus" in run.input else []
    return lines + ([gemm_text(run.input)] if "problem" in run.input else [])


def runs_heading(archive: ResultsArchive) -> list[str]:
    """Lines of an archive of several runs: each different line of their headings once, and their machines."""
    runs = [run for _, run in archive.results()]
    lines = [line for run in runs for line in run_heading(run)]
    return list(dict.fromkeys([*lines, *(origins_text(run.preset) for run in runs)]))
