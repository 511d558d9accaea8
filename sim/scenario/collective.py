"""A collective alone on idle GPUs, by a library or plain: its time, traffic and bandwidth.

The time of a large collective of a library is linear in its size. It is not simulated: the line through two smaller
sizes (`Choice.line_bytes`) gives time and traffic, without the padding of the size that was asked for.
`CollectiveResult.simulated_bytes` names what was simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sim.collective.library import ALGORITHMS, DIRECT, KINDS, LINE_BYTES, PLAIN, RING, Choice, choice_on
from sim.collective.topology import is_direct
from sim.host.gpu import Progress
from sim.hw.request import Stream
from sim.presets import Preset
from sim.run.gpus_run import CollectiveRun
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun
from sim.run.result import RunResult
from sim.run.run import Run
from sim.run.store import Store, run_or_get
from sim.scenario.exchange import LARGEST_BYTES, plain_run
from tracer.models.schedule import Exchange
from traces.choices import nearest
from traces.errors import UserError
from traces.units import PS_PER_NS


@dataclass(frozen=True)
class Collective:
    """A question: a collective on a machine.

    Attributes:
        kind: one of KINDS.
        gpus: their number.
        data_bytes: buffer of a GPU: input of a reduce-scatter, output of an all-gather, message of send_recv.
        library: one of LIBRARIES; None = that of the preset (`collective.library`).
        algorithm, protocol, channels: instead of the library's choice.

    Raises:
        UserError: an unknown name, an impossible number, a choice that the machine or the library does not have.
    """

    preset: Preset
    kind: str
    gpus: int
    data_bytes: int
    library: str | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(f"collective: found {self.kind!r}; {nearest(self.kind, KINDS)}")
        if self.gpus < 2:
            raise UserError(f"gpus: found {self.gpus}, allowed are 2 and more: a collective needs two")
        if self.kind == "send_recv" and self.gpus != 2:
            raise UserError(f"gpus: found {self.gpus}, allowed are 2: send_recv is between two GPUs")
        if not 1 <= self.data_bytes <= LARGEST_BYTES:
            raise UserError(f"bytes: found {self.data_bytes}, allowed are 1 to {LARGEST_BYTES}")
        row = self.preset.machine.collective.library
        own = row.partition("_")[0]
        if self.library not in (None, PLAIN, own):
            names = dict.fromkeys((PLAIN, own))
            raise UserError(f"library: found {self.library!r}, allowed are {', '.join(names)}: {self.preset.name} has "
                            f"collective.library = {row}")  # fmt: skip
        if self.row == PLAIN and self.kind == "broadcast":
            plain = ", ".join(kind for kind in KINDS if kind != self.kind)
            raise UserError(f"collective: found {self.kind} with the library plain, allowed are {plain}: T3 has none")
        for option in ("algorithm", "protocol", "channels"):
            if self.row == PLAIN and (value := getattr(self, option)) is not None:
                raise UserError(f"{option}: found {value} with the library plain, which has no choice: leave it out")

    @property
    def row(self) -> str:
        """Row of `sim/collective/library.toml`, or plain."""
        return PLAIN if self.library == PLAIN else self.preset.machine.collective.library

    @property
    def exchange(self) -> Exchange:
        return Exchange(self.kind, self.data_bytes, self.gpus)

    @property
    def whole_bytes(self) -> int:
        """The buffer that is cut into chunks."""
        return self.exchange.whole_bytes

    def choice(self) -> Choice:
        """The choice of the library."""
        chosen = {"algorithm": self.algorithm, "protocol": self.protocol, "channels": self.channels}
        return choice_on(self.preset.machine, self.kind, self.gpus, self.whole_bytes, **chosen)

    def run(self) -> CollectiveRun | LibraryRun:
        """The run of the whole buffer."""
        if self.row == PLAIN:
            return plain_run(self.preset, self.exchange)
        choice = self.choice()
        preset = library_preset(self.preset, choice)
        return LibraryRun(preset=preset, kind=self.kind, gpus=self.gpus, data_bytes=self.whole_bytes, choice=choice)

    def runs(self, whole: bool = False) -> dict[int, Run]:
        """Size of the whole buffer in bytes -> its run: this size, or two smaller ones of a library's collective."""
        run = self.run()
        if isinstance(run, LibraryRun) and not whole:
            line = run.choice.line_bytes(self.gpus, run.alike, run.messages)
            if self.whole_bytes > line[1]:
                return {size: replace(run, data_bytes=size) for size in line}
        return {self.whole_bytes: run}


@dataclass(frozen=True)
class CollectiveResult:
    """Time and traffic of a collective. Traffic is that of one GPU.

    Attributes:
        bytes: as asked; padded_bytes: with the padding of the chunks to whole lines or tiles. Traffic on a line
            is without it.
        channels: workgroups of the kernel, a CU each.
        bus_GBps: bandwidth of the links that the time corresponds to, as nccl-tests defines it.
        link_bytes: sent, with the flags of the protocol (`link.header_bytes`; plain: without).
        simulated_bytes: sizes that were simulated: this one, or two through which a line gives the figures.
        exactly_once: verdict of the ledger.
    """

    collective: str
    gpus: int
    bytes: int
    padded_bytes: int
    machine: str
    library: str
    algorithm: str
    protocol: str
    channels: int
    time_ns: float
    bus_GBps: float
    dram_read_bytes: int
    dram_write_bytes: int
    link_bytes: int
    simulated_bytes: tuple[int, ...]
    exactly_once: bool


def bus_share(kind: str, gpus: int) -> float:
    """Bytes that cross the links of a GPU at least, per byte of the buffer (nccl-tests, doc/PERFORMANCE.md)."""
    if kind in ("send_recv", "broadcast"):
        return 1.0
    return (gpus - 1) / gpus * (2 if kind == "all_reduce" else 1)


def simulate_collective(
    asked: Collective,
    store: Store | None = None,
    fresh: bool = False,
    whole: bool = False,
    progress: Progress | None = None,
) -> CollectiveResult:
    """Simulate a collective.

    Args:
        store: of finished runs; None = simulate and store nothing.
        fresh: simulate even if the store has the result.
        whole: simulate all bytes of a large collective.
        progress: called with (kernel, workgroups done, workgroups).

    Raises:
        UserError: see `Collective`; a machine that cannot run the plan.
    """
    runs = asked.runs(whole)
    found = {size: run_or_get(run, store, fresh=fresh, progress=progress).result for size, run in runs.items()}
    return result_of(asked, runs, found)


def result_of(asked: Collective, runs: Mapping[int, Run], results: Mapping[int, RunResult]) -> CollectiveResult:
    """Time and traffic from the results of `Collective.runs`."""
    sizes, asked_run = list(runs), asked.run()
    moved = [_moved(runs[size], results[size]) for size in sizes]
    time_ps, read, write, link = (_on_line(sizes, each, asked.whole_bytes) for each in zip(*moved, strict=True))
    how = asked_run.choice if isinstance(asked_run, LibraryRun) else _plain_choice(asked)
    return CollectiveResult(
        collective=asked.kind,
        gpus=asked.gpus,
        bytes=asked.data_bytes,
        padded_bytes=_padded_bytes(asked_run) * asked.data_bytes // asked.whole_bytes,
        machine=asked.preset.name,
        library=asked.row.partition("_")[0],
        algorithm=how.algorithm,
        protocol=how.protocol,
        channels=how.channels,
        time_ns=time_ps / PS_PER_NS,
        bus_GBps=bus_share(asked.kind, asked.gpus) * asked.data_bytes * 1000 / time_ps,
        dram_read_bytes=round(read),
        dram_write_bytes=round(write),
        link_bytes=round(link),
        simulated_bytes=tuple(size * asked.data_bytes // asked.whole_bytes for size in sizes),
        exactly_once=all(bool(result.exactly_once) for result in results.values()),
    )


def _padded_bytes(run: CollectiveRun | LibraryRun) -> int:
    return run.padded_bytes if isinstance(run, LibraryRun) else run.source.problem.output_bytes


def _moved(run: Run, result: RunResult) -> tuple[int, ...]:
    """Time in ps, and bytes that a GPU reads, writes and sends."""
    wire_bytes = LINE_BYTES + (run.preset.machine.link.header_bytes if isinstance(run, LibraryRun) else 0)
    moved = result.mean_dram_bytes
    assert moved is not None
    # lines that leave L2 later (`collective.cache` = allocate) are writes of compute
    read = int(moved[Stream.COMM_READ] + moved[Stream.COMPUTE_READ])
    write = int(moved[Stream.COMM_WRITE] + moved[Stream.COMPUTE_WRITE])
    return result.time_ps, read, write, result.link_bytes * wire_bytes // LINE_BYTES


def _on_line(sizes: Sequence[int], values: Sequence[int], wanted: int) -> float:
    """The value at the wanted size: the only one, or that of the line through two."""
    if len(sizes) == 1:
        return values[0]
    (low, high), (at_low, at_high) = sizes, values
    return at_high + (wanted - high) * (at_high - at_low) / (high - low)


def _plain_choice(asked: Collective) -> Choice:
    """The plain plans as a choice: no protocol, all CUs of `collective.cus`."""
    machine = asked.preset.machine
    direct = is_direct(machine.link.topology) or DIRECT in ALGORITHMS[asked.kind]
    cus = min(machine.collective.cus, machine.cu.count)
    return Choice(PLAIN, DIRECT if direct else RING, PLAIN, cus)
