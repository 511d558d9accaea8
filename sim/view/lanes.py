"""The timeline of runs as lanes: kernels, stages, CUs, DMA engines, Tracker, link and DRAM, on one axis of time.

A section is one configuration: its runs stand one after the other (GEMM, then reduce-scatter, then all-gather). A lane
has either bars (workgroups, transfers, triggers) or levels (rates and fills from the time series). Lanes that are many
stand in a group that a page can fold. If several GPUs were simulated, each has its own groups; else GPU 0 stands for
all.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sim.host.gpu import MAX_SPANS
from sim.hw.spans import SpanKind
from sim.results import RunResult
from sim.run.library_run import BARE_PS
from sim.spec import Topology
from tracer.elf.names import short_name
from traces.errors import UserError
from traces.units import GIGA, PS_PER_NS

NO_CHUNK = -1
"""Chunk of a workgroup whose kernel has no chunks."""
STREAMS = {
    "compute reads": "dram_compute_read_bytes",
    "compute writes": "dram_compute_write_bytes",
    "communication reads": "dram_comm_read_bytes",
    "communication writes": "dram_comm_write_bytes",
}
"""Name of a stream of DRAM traffic -> column of the time series."""
WAITS = {
    "data": "warps_at_data",
    "barrier": "warps_at_barrier",
    "load/store unit": "warps_at_lsu",
    "Tracker": "warps_at_tracker",
    "pipe, or computing": "warps_at_pipe",
}
"""What a warp waits for -> level of the time series (`sim.machine.stalls`)."""
GB_PER_S = "GB/s"
BYTES_PER_PS = 1000
"""GB/s in a byte per picosecond."""
SHORTEST_PS = PS_PER_NS
"""Bars are drawn at least this long: triggers have no length."""
AT = np.dtype([(name, "i8") for name in ("start_ps", "end_ps", "tag", "chunk", "unit", "kind", "phase")])
"""A span on the axis of its section. phase: number of its run in the section."""


class Bars(NamedTuple):
    """A lane of bars.

    Attributes:
        name: of the unit, e.g. "CU 3".
        item: what a bar is: kernel, stage, workgroup, transfer, trigger.
        at: AT [bars], ordered by start.
        place: i8 [bars]: bars with equal places do not overlap as drawn (SHORTEST_PS).
        labels: texts of the bars; () = item and tag.
    """

    name: str
    item: str
    at: np.ndarray
    place: np.ndarray
    labels: tuple[str, ...] = ()


class Levels(NamedTuple):
    """A lane of values over time.

    Attributes:
        name: of the quantity. unit: of measure.
        start_ps, end_ps: of each interval, i8 [intervals].
        columns: label -> f8 [intervals]; values that add up.
        peak: largest possible sum; 0 = not known.
    """

    name: str
    unit: str
    start_ps: np.ndarray
    end_ps: np.ndarray
    columns: dict[str, np.ndarray]
    peak: float = 0.0


class Group(NamedTuple):
    """Lanes of one kind of unit of a GPU. summary: a lane that stands for all; None = the lanes are always shown."""

    name: str
    lanes: list[Bars | Levels]
    summary: Levels | None = None
    gpu: int = 0


class Arrow(NamedTuple):
    """From the trigger of a tile to its transfer by a DMA engine of a GPU. chunk, engine: the lanes of both."""

    gpu: int
    tag: int
    trigger_ps: int
    chunk: int
    start_ps: int
    engine: int


class Section(NamedTuple):
    """A configuration, or a single run.

    Attributes:
        runs: their names.
        time_ps: of all runs. end_ps: of the axis.
        cut: a run had more bars than a result holds; the last ones are missing.
        gpus: number of simulated GPUs.
        note: which GPUs the lanes show, "" = there is only one.
    """

    name: str
    runs: tuple[str, ...]
    time_ps: int
    end_ps: int
    groups: list[Group]
    arrows: list[Arrow]
    cut: bool
    gpus: int
    note: str


class Part(NamedTuple):
    """A run of a section, with the time of its begin on the axis of the section."""

    name: str
    run: RunResult
    start_ps: int
    last: bool

    @property
    def inner_ps(self) -> int:
        """Begin of its spans and series: those of a library's collective have no launch (`LibraryRun.signed`)."""
        return self.start_ps + self.run.time_ps - int(self.run.figures.get(BARE_PS) or self.run.time_ps)


def section(name: str, runs: Sequence[tuple[str, RunResult]]) -> Section:
    """The lanes of runs that follow each other. runs: (name, run).

    Raises:
        UserError: a run has no time series, so it has no spans either.
    """
    parts, start_ps = [], 0
    for number, (run_name, run) in enumerate(runs):
        if not run.series:
            raise UserError(
                f"timeline: run {run_name} has none; simulate it again with -o and a time series (--interval-ns)"
            )
        parts.append(Part(run_name, run, start_ps, number == len(runs) - 1))
        start_ps += run.time_ps
    gpus = 1 + max(len(part.run.others) for part in parts)
    groups: list[Group] = []
    arrows: list[Arrow] = []
    for gpu in range(gpus):
        own = [part._replace(run=part.run.on_gpu(gpu)) for part in parts]
        at, triggers = _spans(own, gpu), _triggers(own)
        groups += [group._replace(gpu=gpu) for group in _groups(own, at, triggers, gpu) if group.lanes]
        arrows += _arrows(gpu, at, triggers)
    ends = [int(lane.end_ps.max()) for group in groups for lane in group.lanes if isinstance(lane, Levels)]
    names = tuple(part.name for part in parts)
    cut = any(len(part.run.on_gpu(gpu).spans) >= MAX_SPANS for part in parts for gpu in range(gpus))
    return Section(name, names, start_ps, max([start_ps, *ends]), groups, arrows, cut, gpus, _note(parts, gpus))


def _note(parts: list[Part], simulated: int) -> str:
    """Which GPUs the lanes show."""
    gpus = max(part.run.input.get("gpus", 1) for part in parts)
    if gpus == 1:
        return ""
    return f"all {gpus} GPUs" if simulated > 1 else f"GPU 0; the other {gpus - 1} GPUs do the same"


def _groups(parts: list[Part], at: np.ndarray, triggers: np.ndarray, gpu: int) -> Iterator[Group]:
    """The groups of a GPU. The kernels are those of GPU 0."""
    stages = _stages(at)
    yield Group("kernels", [*([_kernels(parts)] if gpu == 0 else []), *([stages] if len(stages.at) else [])])
    everywhere = _level(parts, "resident_workgroups", "all CUs", "workgroups")
    yield Group("CUs", _units(at, SpanKind.WORKGROUP, "CU", "workgroup"), everywhere)
    yield Group("warps", _warps(parts))
    yield Group("DMA engines", _units(at, SpanKind.DMA, "DMA engine", "transfer"))
    chunks: list[Bars | Levels] = [
        _bars(f"chunk {chunk}", "trigger", triggers[triggers["chunk"] == chunk])
        for chunk in np.unique(triggers["chunk"])
    ]
    yield Group("Tracker", chunks, _level(parts, "tracker_live_tiles", "live tiles", "tiles"))
    yield Group("link", _link(parts))
    yield Group("DRAM", [_dram(parts), _level(parts, "queue_columns", "DRAM queues", "entries")])
    yield Group("DRAM channels", *_channels(parts))


def places(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """A place for each bar: the lowest that is free at its start. Bars in one place do not overlap."""
    free: list[int] = []
    place_of = np.zeros(len(starts), np.int64)
    for k in np.argsort(starts, kind="stable"):
        place = next((number for number, until in enumerate(free) if until <= starts[k]), len(free))
        if place == len(free):
            free.append(0)
        free[place], place_of[k] = int(ends[k]), place
    return place_of


def _chunks(run: RunResult, tags: np.ndarray, gpu: int) -> np.ndarray:
    """The local chunk of each tag of a GPU (`sim.collective.chunks`), or NO_CHUNK.

    Runs of a GEMM whose tiles are sent as they are made have chunks. A user's plan has its own, which triggers name.
    """
    given = run.input
    if "plan_sha256" in given or not (given.get("fused") or "software" in given):
        chunk_of = dict(run.triggers[:, [0, 2]].tolist())
        untracked = 0 if chunk_of else NO_CHUNK  # stores leave at once
        return np.array([chunk_of.get(tag, untracked) for tag in tags.tolist()], np.int64)
    chunk = np.searchsorted(given["edges"], tags, side="right") - 1
    return np.where(tags < given["edges"][-1], (chunk + gpu) % given["gpus"], NO_CHUNK)


def _spans(parts: list[Part], gpu: int) -> np.ndarray:
    """All spans of a section, AT, ordered by start."""
    found = [np.zeros(0, AT)]
    for phase, part in enumerate(parts):
        spans = part.run.spans
        at = np.zeros(len(spans), AT)
        at["start_ps"], at["end_ps"] = spans["start_ps"] + part.inner_ps, spans["end_ps"] + part.inner_ps
        at["tag"], at["unit"], at["kind"], at["phase"] = spans["tag"], spans["unit"], spans["kind"], phase
        at["chunk"] = _chunks(part.run, at["tag"], gpu)
        found.append(at)
    return _ordered(np.concatenate(found))


def _triggers(parts: list[Part]) -> np.ndarray:
    """Triggers of the Tracker, AT with equal start and end, ordered by time."""
    found = [np.zeros(0, AT)]
    for phase, part in enumerate(parts):
        at = np.zeros(len(part.run.triggers), AT)
        tag, time_ps, chunk = part.run.triggers.T
        at["start_ps"] = at["end_ps"] = time_ps + part.inner_ps
        at["tag"], at["chunk"], at["phase"] = tag, chunk, phase
        found.append(at)
    return _ordered(np.concatenate(found))


def _ordered(at: np.ndarray) -> np.ndarray:
    return at[np.argsort(at["start_ps"], kind="stable")]


def _kernels(parts: list[Part]) -> Bars:
    rows: list[tuple[int, ...]] = []
    labels = []
    for phase, part in enumerate(parts):
        for kernel in part.run.kernels:
            start_ps, end_ps = kernel.start_ps + part.start_ps, kernel.end_ps + part.start_ps
            rows.append((start_ps, end_ps, len(rows), NO_CHUNK, 0, 0, phase))
            labels.append(part.name if len(part.run.kernels) == 1 else short_name(kernel.name))
    return _bars("kernels", "kernel", np.array(rows, AT), tuple(labels))


def _stages(at: np.ndarray) -> Bars:
    """Stages: from the first workgroup of a chunk to the end of its last workgroup."""
    workgroups = at[(at["kind"] == SpanKind.WORKGROUP) & (at["chunk"] != NO_CHUNK)]
    rows = [
        (own["start_ps"].min(), own["end_ps"].max(), chunk, chunk, 0, 0, own["phase"][0])
        for chunk in np.unique(workgroups["chunk"])
        for own in [workgroups[workgroups["chunk"] == chunk]]
    ]
    return _bars("stages", "stage", _ordered(np.array(rows, AT)))


def _bars(name: str, item: str, at: np.ndarray, labels: tuple[str, ...] = ()) -> Bars:
    drawn_end_ps = np.maximum(at["end_ps"], at["start_ps"] + SHORTEST_PS)
    return Bars(name, item, at, places(at["start_ps"], drawn_end_ps), labels)


def _units(at: np.ndarray, kind: SpanKind, name: str, item: str) -> list[Bars | Levels]:
    """A lane for each unit that has spans of a kind."""
    own = at[at["kind"] == kind]
    return [_bars(f"{name} {unit}", item, own[own["unit"] == unit]) for unit in np.unique(own["unit"])]


def _intervals(parts: list[Part]) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of each interval. A run that another one follows ends there: what comes later is not shown."""
    starts, ends = [], []
    for part in parts:
        end_ps = part.run.times_ps()
        if not part.last:
            end_ps = np.minimum(end_ps, part.run.time_ps - (part.inner_ps - part.start_ps))
        starts.append(part.run.times_ps() - part.run.interval_ps + part.inner_ps)
        ends.append(end_ps + part.inner_ps)
    return np.concatenate(starts), np.concatenate(ends)


def _column(parts: list[Part], name: str, rate: bool) -> np.ndarray:
    """A column of the time series of all parts: levels, or GB/s."""
    return np.concatenate(
        [part.run.column(name) * (BYTES_PER_PS / part.run.interval_ps if rate else 1.0) for part in parts]
    )


def _levels(parts: list[Part], name: str, unit: str, columns: dict[str, np.ndarray], peak: float = 0.0) -> Levels:
    start_ps, end_ps = _intervals(parts)
    shown = end_ps > start_ps
    return Levels(name, unit, start_ps[shown], end_ps[shown], {k: v[shown] for k, v in columns.items()}, peak)


def _level(parts: list[Part], column: str, name: str, unit: str) -> Levels:
    return _levels(parts, name, unit, {name: _column(parts, column, rate=False)})


def _dram(parts: list[Part]) -> Levels:
    columns = {name: _column(parts, column, rate=True) for name, column in STREAMS.items()}
    return _levels(parts, "DRAM traffic", GB_PER_S, columns, parts[0].run.preset.peaks().dram_bytes_per_s / GIGA)


def _channels(parts: list[Part]) -> tuple[list[Bars | Levels], Levels | None]:
    """A lane for each DRAM channel, and a lane with their mean and the busiest. An older archive has none."""
    if any(len(part.run.channel_bytes) == 0 for part in parts):
        return [], None
    rates = np.concatenate([part.run.channel_bytes * (BYTES_PER_PS / part.run.interval_ps) for part in parts])
    peak = parts[0].run.preset.peaks().dram_bytes_per_s / GIGA / rates.shape[1]
    lanes: list[Bars | Levels] = [
        _levels(parts, f"channel {number}", GB_PER_S, {"traffic": rate}, peak) for number, rate in enumerate(rates.T)
    ]
    mean = rates.mean(axis=1)
    spread = {"mean of the channels": mean, "busiest channel above the mean": rates.max(axis=1) - mean}
    return lanes, _levels(parts, "all channels", GB_PER_S, spread, peak)


def _warps(parts: list[Part]) -> list[Bars | Levels]:
    """Warps by what they wait for. An older archive does not know it."""
    if not all(name in part.run.series for part in parts for name in WAITS.values()):
        return []
    columns = {name: _column(parts, column, rate=False) for name, column in WAITS.items()}
    return [_levels(parts, "warps wait for", "warps", columns)]


def _link(parts: list[Part]) -> list[Bars | Levels]:
    """The traffic that a GPU sends. Its peak: the rate of the ports that send something."""
    units = [kernel.units["link"] for part in parts for kernel in part.run.kernels if "link" in kernel.units]
    if not units:
        return []
    link = parts[0].run.preset.machine.link
    lanes = 1 if link.topology == Topology.SWITCH else max(int((ports["bytes"] > 0).sum()) for ports in units)
    sent = {"sent": _column(parts, "link_bytes", rate=True)}
    return [_levels(parts, "link, sent", GB_PER_S, sent, lanes * link.GB_per_s * link.efficiency)]


def _arrows(gpu: int, at: np.ndarray, triggers: np.ndarray) -> list[Arrow]:
    """One arrow for each tile that a DMA engine sent after its trigger: to the first transfer of the tile after it."""
    waiting = {(row["phase"], row["tag"]): row for row in triggers}
    found = []
    for sent in at[at["kind"] == SpanKind.DMA]:
        trigger = waiting.get((sent["phase"], sent["tag"]))
        if trigger is not None and sent["start_ps"] >= trigger["start_ps"]:
            numbers = (gpu, sent["tag"], trigger["start_ps"], trigger["chunk"], sent["start_ps"], sent["unit"])
            found.append(Arrow(*(int(number) for number in numbers)))
            del waiting[sent["phase"], sent["tag"]]
    return found
