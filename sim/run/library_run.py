"""A collective as NCCL or RCCL runs it, as a run: staged plans on a machine with the links and software of its row.

LibraryRun   the collective alone
BesideRun    the collective and a GEMM of other data at the same time, on CUs of their own or on shared ones
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sim.collective import tree
from sim.collective.chunks import Chunks, WholeBuffer, even_chunks
from sim.collective.kernel import BAND_BYTES, Pieces
from sim.collective.library import (
    DIRECT,
    LINE_BYTES,
    NVLS,
    NVLS_WORKGROUPS,
    RING,
    SEND_RECV,
    TREE,
    Choice,
    messages_of,
)
from sim.collective.plans import Plan
from sim.collective.staged import kernels, staged_plan
from sim.collective.topology import adding_switch, in_one_node
from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.host.window import Launch
from sim.machine.memory import check_plan_memory
from sim.presets.preset import OVERRIDE
from sim.run.inputs import gemm_input
from sim.run.many_gpus import COLLECTIVES, collective_launch, plan_cluster, replace_unit, run_cluster, run_plan
from sim.run.result import RunResult
from sim.run.run import Run, gemm_cost
from tracer.gemm.source import OUTPUT_TILE, GemmSource
from traces.errors import UserError

PULLED = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv")
"""Collectives whose receivers can load."""
BARE_PS = "bare_time_ps"
"""Figure: time without the launch."""


@dataclass(frozen=True, kw_only=True)
class LibraryRun(Run):
    """A collective of a library.

    Attributes:
        kind: one of `sim.collective.library.KINDS`.
        gpus: their number.
        data_bytes: of the whole buffer of a GPU; chunks are padded to whole lines and equal tiles.
        choice: algorithm, protocol and channels. The preset has their values (`sim.run.library_preset`).
    """

    kind: str
    gpus: int
    data_bytes: int
    choice: Choice

    @property
    def title(self) -> str:
        how = f"{self.choice.algorithm}, {self.choice.protocol}, {self.choice.channels} channels"
        return f"{self.kind} of {self.data_bytes} B on {self.gpus} GPUs ({how}), {self.preset.name}"

    @property
    def cost(self) -> float:
        requests = COLLECTIVES[self.kind].requests if self.kind in COLLECTIVES else 2.0
        return 2 * requests * self.data_bytes / LINE_BYTES

    def input(self) -> dict[str, Any]:
        how = {"algorithm": self.choice.algorithm, "protocol": self.choice.protocol, "channels": self.choice.channels}
        return {"collective": self.kind, "gpus": self.gpus, "bytes": self.data_bytes} | how

    def deciding_input(self) -> dict[str, Any]:
        """With what `library.toml` decides and neither the code nor the machine has."""
        return self.input() | {"pieces": asdict(self.pieces), "slice_ps": self.slice_ps}

    def own_options(self) -> dict[str, Any]:
        return {}

    @property
    def alike(self) -> bool:
        """Do all GPUs do the same?"""
        return not self.is_whole and in_one_node(self.preset.machine, self.gpus)

    def simulated_gpus(self) -> int:
        return 1 if self.alike else self.gpus

    @property
    def shape(self) -> tuple[int, int]:
        """Tiles, and lines of a tile.

        In a direct algorithm a message has its share of the channels, in others a chunk has all of them.
        """
        channels = self.choice.channels
        shared = max(1, channels // self.messages) if self.choice.algorithm == DIRECT else channels
        chunks = 1 if self.is_whole else self.gpus
        return buffer_shape(self.data_bytes, chunks, shared, None if self.slice_ps is None else self.pieces.count)

    @cached_property
    def buffer(self) -> tuple[np.ndarray, Chunks]:
        tiles = flat_buffer(*self.shape)
        return tiles, WholeBuffer(len(tiles), self.gpus) if self.is_whole else even_chunks(len(tiles), self.gpus)

    @property
    def messages(self) -> int:
        """Messages of a GPU, if the algorithm is direct."""
        return messages_of(self.kind, self.gpus)

    @property
    def is_whole(self) -> bool:
        """Does every GPU send the whole buffer?"""
        return self.choice.algorithm == TREE or self.kind == "broadcast"

    @property
    def pieces(self) -> Pieces:
        """How a chunk, or the whole buffer, is cut."""
        if self.is_whole:
            return self.choice.whole_pieces(self.data_bytes)
        return self.choice.pieces(self.messages, self.data_bytes // self.gpus)

    @property
    def slice_ps(self) -> int | None:
        """Software of a channel before each slice of a step; None: NVLS, whose channels are many short workgroups."""
        if self.choice.algorithm == NVLS:
            return None
        slices = 1 if self.choice.algorithm == DIRECT else self.choice.figures.slices
        return self.preset.machine.collective.step_ps // slices

    @property
    def padded_bytes(self) -> int:
        tiles, lines = self.shape
        return tiles * lines * LINE_BYTES

    @property
    def pulls(self) -> bool:
        """Do receivers load over the links (D56)?"""
        return self.preset.machine.collective.pulls and self.choice.can_pull and self.kind in PULLED

    def plans(self) -> list[Plan]:
        """The plans of all GPUs.

        Raises:
            UserError: the user asks for loads where there are none.
        """
        machine, (output, chunks) = self.preset.machine, self.buffer
        asked = machine.collective.pulls and self.preset.sources["collective.pulls"].kind == OVERRIDE
        if asked and not self.pulls:
            raise UserError(
                f"collective.pulls: found true for {self.title}, allowed is false: only {', '.join(PULLED)} can, with "
                "protocol simple in one node"
            )
        check_plan_memory(chunks.tiles, chunks.gpus)
        gpus = range(self.gpus)
        if self.choice.algorithm == NVLS:
            switch, step_ps = adding_switch(machine, self.gpus), machine.collective.step_ps
            plan = COLLECTIVES[f"{NVLS}_{self.kind}"].plan
            return [plan(output, chunks, gpu, switch, step_ps=step_ps) for gpu in gpus]
        topology, pieces = machine.link.topology, self.pieces
        if self.choice.algorithm == TREE:
            per_node = self.gpus // self.choice.nodes
            return [tree.all_reduce(output, chunks, gpu, topology, per_node=per_node, pieces=pieces) for gpu in gpus]
        if self.kind == "broadcast":
            return [tree.broadcast(output, chunks, gpu, topology, pieces=pieces) for gpu in gpus]
        return [staged_plan(self.kind, output, chunks, gpu, topology, pieces, self.pulls) for gpu in gpus]

    def launches(self, plan: Plan) -> list[Launch]:
        """The kernel of a GPU, or its parts, which run at the same time.

        A ring has one, a tree one for each way; else one sends, one receives, and one copies what the GPU keeps, if it
        keeps a part.
        """
        channels, algorithm = self.choice.channels, self.choice.algorithm
        copies = algorithm == DIRECT and self.kind != SEND_RECV
        own = max(1, channels // self.gpus) if copies else 0
        shared = (0, max(1, channels - own))
        if algorithm == RING:
            parts, places = [plan.steps], [shared]
        elif algorithm == TREE:
            parts, places = tree.both_ways(plan), [shared, shared]
        else:
            parts, places = kernels(plan.steps), [shared, shared, (channels - own, channels)]
        return [
            self._part(replace(plan, steps=steps), queue, cus)
            for queue, (steps, cus) in enumerate(zip(parts, places, strict=True))
            if steps
        ]

    def _part(self, plan: Plan, queue: int, cus: tuple[int, int]) -> Launch:
        machine = replace_unit(self.preset.machine, collective={"launch_ps": 0})
        launch = collective_launch(machine, self.kind, plan, queue, cus, self.slice_ps)
        if self.choice.algorithm == NVLS:
            return replace(launch, places=NVLS_WORKGROUPS * (1 + queue))  # a CU counts the workgroups of both parts
        return launch if self.choice.algorithm == RING else replace(launch, part=False, keeps=cus[1] - cus[0])

    def reads(self, field: str) -> bool:
        return super().reads(field) and field != "collective.launch_ps"  # all are idle until then; `signed` adds it

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        result = run_plan(
            *(self.preset.machine, self.plans(), self.launches),
            name=self.kind,
            explicit=not self.alike,
            interval_ps=self.interval_ps,
            progress=progress,
            save_points=save_points,
        )
        result.figures[BARE_PS] = result.time_ps
        return result

    def signed(self, result: RunResult) -> RunResult:
        signed = super().signed(result)
        end_ps = int(result.figures[BARE_PS] or 0) + self.preset.machine.collective.launch_ps
        return replace(signed, kernels=[replace(kernel, end_ps=end_ps) for kernel in result.kernels])


@dataclass(frozen=True, kw_only=True)
class BesideRun(LibraryRun):
    """A GEMM and a collective of a library at the same time.

    The channels keep the last CUs, and the GEMM has the others; or both share all CUs. Then a channel gets a place when
    a CU has room, keeps it until the last data of the collective are given out, and the GEMM has the rest
    (`dispatch.kernels`). The figures `gemm_end_ps` and `collective_end_ps` are the times from the two calls to the ends
    of the last warps, with the launches. `channels_placed_ps`, on shared CUs, is the time from the call of the
    collective until all its channels have places.

    No deadlock is possible: a channel takes only work whose data have come, so the channels that have places do all the
    work, be it a single one.

    Attributes:
        source: the GEMM of each GPU.
        shared: share all CUs.
        lead_ps: time from the call of the collective to the call of the GEMM; negative: the GEMM is called first.
    """

    source: GemmSource
    shared: bool = False
    lead_ps: int = 0

    @property
    def title(self) -> str:
        return f"{self.source.info.name} beside {super().title}"

    @property
    def cost(self) -> float:
        return gemm_cost(self.source) + super().cost

    def input(self) -> dict[str, Any]:
        return gemm_input(self.source) | super().input()

    def own_options(self) -> dict[str, Any]:
        return {"shared": self.shared, "lead_ps": self.lead_ps}

    def reads(self, field: str) -> bool:
        return Run.reads(self, field)

    def check(self) -> None:
        """Refuse channels that do not fit.

        Raises:
            UserError: names what was found and what is allowed.
        """
        channels, count, algorithm = self.choice.channels, self.preset.machine.cu.count, self.choice.algorithm
        if self.shared and algorithm != RING:
            raise UserError(
                f"algorithm on shared CUs: found {algorithm}, allowed is {RING}: its channels are one kernel"
            )
        most = count if self.shared else count - 1
        if not 1 <= channels <= most:
            raise UserError(f"channels: found {channels}, allowed beside a GEMM are 1 to {most}")

    @property
    def calls_ps(self) -> tuple[int, int]:
        """When GEMM and collective are called."""
        return max(0, self.lead_ps), max(0, -self.lead_ps)

    def kernels(self, plan: Plan) -> list[Launch]:
        """GEMM and collective of a GPU. On shared CUs the queues are in the order of the launches."""
        machine, channels = self.preset.machine, self.choice.channels
        (gemm_ps, collective_ps), split = self.calls_ps, machine.cu.count - channels
        gemm = Launch(self.source, start_ps=gemm_ps + machine.dispatch.launch_ps)
        parts = [
            replace(part, start_ps=part.start_ps + collective_ps + machine.collective.launch_ps)
            for part in self.launches(plan)
        ]
        if self.shared:
            both = [gemm, *(replace(part, cus=None, keeps=channels) for part in parts)]
            both.sort(key=lambda launch: launch.start_ps)
            return [replace(launch, queue=queue) for queue, launch in enumerate(both)]
        moved = [
            replace(part, queue=1 + part.queue, cus=(split + part.cus[0], split + part.cus[1]))
            for part in parts
            if part.cus
        ]
        return [replace(gemm, cus=(0, split)), *moved]

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        self.check()
        cluster, launches = plan_cluster(
            self.preset.machine, self.plans(), self.kernels, explicit=False, interval_ps=self.interval_ps
        )
        result = run_cluster(cluster, launches, self.kind, progress, save_points)
        dispatch, (gemm_ps, collective_ps) = cluster.gpus[0].node.dispatch, self.calls_ps
        own = [launch.queue for launch in launches[0] if launch.comm]
        (other,) = [launch.queue for launch in launches[0] if not launch.comm]
        result.figures["gemm_end_ps"] = int(dispatch["last_exit_ps"][other]) - gemm_ps
        result.figures["collective_end_ps"] = int(dispatch["last_exit_ps"][own].max()) - collective_ps
        if self.shared:
            result.figures["channels_placed_ps"] = int(dispatch["kept_ps"][own].max()) - collective_ps
        return result

    def signed(self, result: RunResult) -> RunResult:
        return Run.signed(self, result)


def buffer_shape(data_bytes: int, chunks: int, channels: int, parts: int | None = None) -> tuple[int, int]:
    """Tiles of a buffer, and lines of a tile.

    A chunk has whole lines. Its tiles are equal. If there are enough lines, each channel has the same number of tiles.

    Args:
        chunks: their number.
        parts: tiles of a channel in a chunk. None: as many as their size of at most BAND_BYTES asks for.
    """
    lines = -(-data_bytes // (chunks * LINE_BYTES))
    if parts is None:
        parts = -(-lines * LINE_BYTES // (channels * BAND_BYTES))
    turns = max(1, min(parts, lines // channels))
    tile_lines = -(-lines // (channels * turns))
    return chunks * -(-lines // tile_lines), tile_lines


def flat_buffer(count: int, tile_lines: int) -> np.ndarray:
    """OUTPUT_TILE records of a buffer without gaps."""
    tiles = np.zeros(count, OUTPUT_TILE)
    tiles["address"] = np.arange(count) * tile_lines * LINE_BYTES
    tiles["runs"], tiles["run_bytes"], tiles["pitch_bytes"] = tile_lines, LINE_BYTES, LINE_BYTES
    return tiles
