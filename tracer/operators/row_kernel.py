"""Row kernel: one or two sums (or maxima) over each row, then an output that depends on them.

The work has `rows` x `cols` elements. The kernel is built like library kernels:

* A row of at most ROW_ACCESSES warp accesses belongs to one warp; a workgroup has one row per warp. A longer row
  belongs to a whole workgroup (with `shared_rows` every row does), and the warps take its accesses in turn.
* A lane has `vector` adjacent elements per access: 16 bytes of the widest type if they divide a row. With `tail` they
  need not: accesses are wide as long as all warps have one, and the rest of the row has one element per lane.
* A warp that has at most KEPT_ACCESSES accesses of a row keeps the values of the inputs in registers: they are read
  once, and the sums follow one after the other. Otherwise (or without `keep`) the inputs are read in `passes` passes
  for the sums and once more for the output. `staged` values are kept in shared memory.
* Sums over lanes use shuffles. If a row belongs to several warps, sums over warps use shared memory and a barrier.
* Then the vectors (weight, bias) are read, UNROLL accesses of each at a time, and the outputs are stored. Scalars of a
  row (mean, maximum, ...) have 4 bytes; each warp of a row reads them at its begin, the first one stores them.
* With `partials` a workgroup takes `turns` rows and stores the sums of each column over its rows, 4 bytes each.

Traffic in sectors of 32 bytes, where a row of tensor t is S(t) whole sectors:

    requested by loads     rows * (n * sum S(inputs) + sum S(vectors)), n = 1 kept, `passes` + 1 otherwise; with
                           `first_outputs` not kept, n = `passes` and rows * S of the first one more
    requested by stores    rows * sum S(outputs), rows for each scalar, workgroups * S(4 bytes) for each partial
    DRAM reads             rows * sum S(inputs) + sum S(vectors), if L2 holds the vectors and the rows in flight
    DRAM writes            rows * sum S(outputs) + ceil(rows / 8) for each scalar + the partials
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tracer.events import NO_ADDRESSES, VECTOR_BYTES, access, compute, event, join
from tracer.operators.even_kernel import EVENTS_TOGETHER, EvenKernel, check_vector, check_warps, elements_per_lane
from tracer.operators.row_costs import ASSUMED, KEPT_ACCESSES, RowCosts
from tracer.operators.tensor import Tensor, arithmetic_pipe
from traces.errors import UserError
from traces.schema import LINE_BYTES, NO_SLOT, WIDTH_BYTES, Kind, Pipe, Space
from traces.source import KernelInfo, Moved, Workgroup

ROW_ACCESSES = 8
"""Most accesses of a row that belongs to one warp."""
UNROLL = 4
"""Accesses of each vector in flight per warp."""
SCALAR_BYTES = 4
LATENCY_CLK = 4
SFU_LATENCY_CLK = 20
ADDRESS_REGISTERS = 24
"""Latencies and registers are assumed."""
REGISTERS_MAX = 255
REGISTER_FILE = 65536
"""Registers of 32 lanes of a CU: a large workgroup has fewer per thread (what does not fit is spilled: left out)."""
INPUTS_MAX, VECTORS_MAX = 4, 4
ACCESSES_MAX = 1 << 21
"""Accesses of a workgroup, whose events are in memory: some 1 GB."""

# Scoreboard slots: INPUT .. INPUT + 8 * INPUTS_MAX - 1 and so on
INPUT, VECTOR, OUTPUT, SUM, TOTAL, SCALAR = 0, 32, 48, 56, 57, 58


@dataclass(frozen=True)
class RowKernel(EvenKernel):
    """A row kernel.

    Attributes:
        name: of the kernel.
        inputs, outputs: tensors of `rows` x `cols` elements.
        first_outputs: outputs that are stored with the sums. If the inputs are not kept, the first one is read again.
        vectors: tensors of `cols` elements.
        scalars_in, scalars_out: addresses of arrays with 4 bytes per row.
        partials: addresses of arrays [workgroups, cols] of 4 bytes.
        reductions: sums one after the other if the inputs are kept.
        passes: reading passes for the sums if they are not.
        fma: arithmetic instructions per element for the output. sfu: transcendental ones.
        sum_fma: arithmetic instructions per element for each sum.
        vector: elements of a lane per access; 0 = as many as fit 16 bytes and divide a row.
        tail: wide accesses need not divide a row. staged: values that are kept are in shared memory.
        turns: rows, one after the other, of a workgroup (of each warp that owns a row).
        costs: instructions beside the arithmetic.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "row_kernel"
    VERSION: ClassVar[int] = 2

    name: str
    rows: int
    cols: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()
    vectors: tuple[Tensor, ...] = ()
    scalars_in: tuple[int, ...] = ()
    scalars_out: tuple[int, ...] = ()
    partials: tuple[int, ...] = ()
    reductions: int = 1
    passes: int = 1
    fma: int = 2
    sfu: int = 0
    sum_fma: int = 2
    vector: int = 0
    warps: int = 8
    keep: bool = True
    shared_rows: bool = False
    tail: bool = False
    staged: bool = False
    turns: int = 1
    lanes: int = 32
    costs: RowCosts = ASSUMED
    first_outputs: tuple[Tensor, ...] = ()

    def __post_init__(self):
        self.check_sizes("rows", "cols", "warps", "passes")
        self.check_lanes(self.lanes)
        check_warps(self.name, self.warps, self.lanes)
        widest_bytes = max(tensor.bytes for tensor in (*self.inputs, *self._all_outputs, *self.vectors))
        cols = self.vector if self.tail else self.cols  # a tail is not wide
        check_vector(self.name, self.vector, cols, SCALAR_BYTES if self.partials else widest_bytes)
        if len(self.inputs) > INPUTS_MAX or len(self.vectors) > VECTORS_MAX:
            raise UserError(f"{self.name}: must have at most {INPUTS_MAX} inputs and {VECTORS_MAX} vectors")
        tensors = len(self.inputs) + len(self._all_outputs) + len(self.vectors)
        accesses = self.turns * self.warps * (self.row_accesses // self.row_warps + 1) * tensors
        if accesses > ACCESSES_MAX:
            raise UserError(
                f"{self.name} rows = {self.rows:,}: {self.turns:,} rows of {self.cols:,} columns one after the other "
                f"in a workgroup, whose events are in memory; allowed are {self.turns * ACCESSES_MAX // accesses:,}"
            )

    @property
    def flops(self) -> int:
        """Arithmetic operations: one for each instruction and element."""
        sums = self.sum_fma * (self.reductions if self.kept else self.passes)
        return self.rows * self.cols * (sums + self.fma + self.sfu)

    @property
    def moved_bytes(self) -> Moved:
        read, written = (
            sum(t.whole_bytes(self.rows, self.cols) for t in each) for each in (self.inputs, self._all_outputs)
        )
        read += sum(vector.bytes for vector in self.vectors) * self.cols
        partials = self.info.workgroups * self.cols * len(self.partials)
        scalars_in, scalars_out = (len(each) * self.rows for each in (self.scalars_in, self.scalars_out))
        return Moved(read + SCALAR_BYTES * scalars_in, written + SCALAR_BYTES * (scalars_out + partials))

    @property
    def _all_outputs(self) -> tuple[Tensor, ...]:
        return (*self.outputs, *self.first_outputs)

    @property
    def _inputs_again(self) -> tuple[Tensor, ...]:
        """Tensors that are read for the output if the inputs are not kept."""
        return self.first_outputs[:1] or self.inputs

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of all tensors."""
        read = sum(tensor.bytes for tensor in self.inputs) * (1 if self.kept else self.passes)
        read += 0 if self.kept else sum(tensor.bytes for tensor in self._inputs_again)
        others = sum(tensor.bytes for tensor in (*self._all_outputs, *self.vectors))
        return self.rows * self.cols * (read + others) // LINE_BYTES + 1

    @property
    def lane_elements(self) -> int:
        """Elements of a lane per access."""
        widest_bytes = max(tensor.bytes for tensor in (*self.inputs, *self._all_outputs))
        if self.partials:  # the sums of a lane are stored at once
            widest_bytes = max(widest_bytes, SCALAR_BYTES * VECTOR_BYTES // WIDTH_BYTES)
        return elements_per_lane(self.vector, self.cols, widest_bytes)

    @property
    def wide_accesses(self) -> int:
        """Of them, how many have `lane_elements`; the others have one element per lane."""
        each = self.lanes * self.lane_elements
        return self.cols // (self.warps * each) * self.warps if self.tail else -(-self.cols // each)

    @property
    def row_accesses(self) -> int:
        """Number of warp accesses that cover a row."""
        rest = self.cols - self.wide_accesses * self.lanes * self.lane_elements
        return self.wide_accesses + max(0, -(-rest // self.lanes))

    @property
    def row_warps(self) -> int:
        """Number of warps that share a row."""
        return 1 if self.row_accesses <= ROW_ACCESSES and not self.shared_rows else self.warps

    @property
    def kept(self) -> bool:
        """True if the values of a row are kept in registers and the inputs are read once."""
        return self.keep and -(-self.row_accesses // self.row_warps) <= KEPT_ACCESSES

    @cached_property
    def info(self) -> KernelInfo:
        each = self.lane_elements
        accesses = -(-self.row_accesses // self.row_warps)
        held = accesses if self.kept else UNROLL
        wide = max(tensor.bytes for tensor in self.inputs)
        words = held * each * max(1, wide // 4) * len(self.inputs) + ADDRESS_REGISTERS
        words += UNROLL * each * sum(vector.bytes for vector in self.vectors) // 4
        words += accesses * each * len(self.partials)
        return self.make_info(
            f"{self.name}_{self.rows}x{self.cols}",
            workgroups=-(-self.rows * self.row_warps // (self.warps * self.turns)),
            warps=self.warps,
            lanes=self.lanes,
            registers=self.costs.registers
            or min(REGISTERS_MAX, REGISTER_FILE // (self.warps * self.lanes), -(-words // 8) * 8),
            shared_bytes=(2 * SCALAR_BYTES * self.warps if self.row_warps > 1 else 0) + self._staged_bytes,
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`. They differ only in the addresses of their rows."""
        numbers = np.arange(self.warps, dtype=np.uint16)
        program, warp, step, row = self._program
        whole = np.searchsorted(warp, np.arange(self.warps + 1))
        rows = self.warps // self.row_warps
        several = max(1, EVENTS_TOGETHER // len(program))
        for first in range(start, self.info.workgroups, several):
            together = np.arange(first, min(first + several, self.info.workgroups))[:, None]
            events = np.tile(program, (len(together), 1))
            events["base"] += (step * together).astype(np.uint64)
            kept = row + together * rows < self.rows
            for k, index in enumerate(together[:, 0].tolist()):
                if kept[k].all():
                    yield Workgroup(index, numbers, whole, events[k], NO_ADDRESSES)
                else:
                    edges = np.searchsorted(warp[kept[k]], np.arange(self.warps + 1))
                    yield Workgroup(index, numbers, edges, events[k][kept[k]], NO_ADDRESSES)

    @cached_property
    def _program(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Events of workgroup 0 if all its rows exist; for each its warp, step and row.

        step: of the addresses from workgroup to workgroup, bytes. row: to which the event belongs; below 0 = to none.
        """
        rows, grid = self.warps // self.row_warps, self.info.workgroups
        row_0 = [self._warp(place) for place in range(self.row_warps)]
        parts = []
        for warp in range(self.warps):
            events, steps = row_0[warp % self.row_warps]
            for turn in range(self.turns):
                row = turn * grid * rows + warp // self.row_warps
                moved = events.copy()
                moved["base"] += (steps * row).astype(np.uint64)
                parts.append((moved, warp, steps * rows, row))
            parts += [
                (stores, warp, np.full(len(stores), self.cols * SCALAR_BYTES), warp // self.row_warps)
                for stores in self._stored_partials(warp % self.row_warps)
            ]
            parts.append((event(Kind.EXIT), warp, np.zeros(1, np.int64), -self.info.workgroups * self.warps))
        sizes = [len(events) for events, *_ in parts]
        warps, rows_of = (np.repeat([part[field] for part in parts], sizes) for field in (1, 3))
        return join([part[0] for part in parts]), warps, np.concatenate([part[2] for part in parts]), rows_of

    def _warp(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Events of a warp on row 0, and for each event the distance of its addresses from row to row in bytes."""
        mine = np.arange(place, self.row_accesses, self.row_warps)
        parts: list[tuple[np.ndarray, int]] = [(self.costs.on_pipes(self.costs.setup, LATENCY_CLK), 0)]
        parts += self._scalars(Kind.LOAD, self.scalars_in)
        for turn in range(1 if self.kept else self.passes):
            parts += self._read(mine, self.first_outputs if turn == 0 else ()) + self._reduction(place, turn)
        for turn in range(1, self.reductions if self.kept else 0):
            parts += [(self._sums(mine, wait=1 << TOTAL), 0), *self._reduction(place, turn)]
        for group in _groups(mine, min(UNROLL, self.costs.in_flight)):
            parts += self._output(group)
        if place == 0:
            parts += self._scalars(Kind.STORE, self.scalars_out)
        return join([events for events, _ in parts]), _steps(parts)

    def _read(self, mine: np.ndarray, stored: tuple[Tensor, ...]) -> list[tuple[np.ndarray, int]]:
        """Loads of all inputs, some accesses of each at a time, each followed by its sums and by stores."""
        parts = []
        for group in _groups(mine, self.costs.in_flight):
            parts += self._loads(self.inputs, group)
            parts.append((self._addresses(len(group) * (len(self.inputs) + len(stored))), 0))
            parts.append((self._sums(group, wait=self._waits(len(group))), 0))
            for tensor in stored:
                stores = self._accesses(Kind.STORE, tensor, group, 0)
                stores["wait"] = np.uint64(1 << SUM)
                parts.append((stores, tensor.pitch(self.cols)))
        return parts

    def _loads(self, tensors: tuple[Tensor, ...], group: np.ndarray) -> list[tuple[np.ndarray, int]]:
        return [
            (self._accesses(Kind.LOAD, tensor, group, INPUT + KEPT_ACCESSES * number), tensor.pitch(self.cols))
            for number, tensor in enumerate(tensors)
        ]

    def _addresses(self, accesses: int) -> np.ndarray:
        """Address arithmetic of some accesses."""
        return compute(Pipe.ALU, max(1, self.costs.access * accesses), LATENCY_CLK)

    def _waits(self, accesses: int) -> int:
        """Slots of these accesses of all inputs."""
        each = (1 << accesses) - 1
        return sum(each << INPUT + KEPT_ACCESSES * number for number in range(len(self.inputs)))

    def _accesses(self, kind: Kind, tensor: Tensor, group: np.ndarray, slot: int) -> np.ndarray:
        """Accesses to row 0 of a tensor; loads have a slot each."""
        each, wide = self._elements(group), self.wide_accesses
        first = self.lanes * (np.minimum(group, wide) * self.lane_elements + np.maximum(group - wide, 0))
        return access(
            kind,
            len(group),
            lanes=np.minimum((self.cols - first) // each, self.lanes),
            width_bytes=each * tensor.bytes,
            base=tensor.address + first * tensor.bytes,
            slot=slot + np.arange(len(group)) if kind == Kind.LOAD else NO_SLOT,
        )

    def _elements(self, group: np.ndarray) -> np.ndarray:
        """Elements of a lane in each of these accesses."""
        return np.where(group < self.wide_accesses, self.lane_elements, 1)

    @property
    def _staged_bytes(self) -> int:
        """Values of a row in shared memory."""
        return self.cols * sum(tensor.bytes for tensor in self.inputs) if self.staged and self.kept else 0

    @property
    def _pipe(self) -> Pipe:
        """Pipe of the arithmetic."""
        return arithmetic_pipe(tensor.bytes for tensor in (*self.inputs, *self.vectors, *self.outputs))

    def _sums(self, group: np.ndarray, wait: int) -> np.ndarray:
        """Additions of a warp for the values of some accesses."""
        elements = max(self.lane_elements if self.wide_accesses else 1, int(self._elements(group).sum()))
        latency_clk = max(LATENCY_CLK, self.costs.element_clk * elements)
        return compute(self._pipe, self.sum_fma * elements, latency_clk, slot=SUM, wait=wait)

    def _reduction(self, place: int, turn: int) -> list[tuple[np.ndarray, int]]:
        """A sum over the lanes and warps of a row. Events that need the sum wait for TOTAL."""
        if not self.reductions:
            return []
        lanes = self.lanes.bit_length() - 1
        own = self._steps_of_sum(lanes)
        if self.row_warps == 1:
            return [(own, 0)]
        base = SCALAR_BYTES * self.warps * (turn % 2)  # no warp overwrites a value that another warp still reads
        store = access(Kind.STORE, lanes=1, width_bytes=SCALAR_BYTES, base=base + SCALAR_BYTES * place, wait=1 << TOTAL)
        load = access(Kind.LOAD, lanes=self.warps, width_bytes=SCALAR_BYTES, base=base, slot=SUM)
        store["space"] = load["space"] = Space.SHARED
        over_warps = self._steps_of_sum(self.costs.warp_steps or lanes)
        return [(part, 0) for part in (own, store, event(Kind.BARRIER, slot=0), load, over_warps)]

    def _steps_of_sum(self, steps: int) -> np.ndarray:
        costs, wait = self.costs, 1 << SUM | 1 << TOTAL
        return costs.on_pipes(costs.step * steps, costs.step_clk * steps, slot=TOTAL, wait=wait)

    def _output(self, group: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """Loads of vectors and (if not kept) inputs for some accesses, then arithmetic and stores of each access."""
        if not self.outputs and not self.partials:
            return []
        number = len(group)
        parts = [(self._accesses(Kind.LOAD, vector, group, VECTOR + UNROLL * place), 0)
                 for place, vector in enumerate(self.vectors)]  # fmt: skip
        slots = [VECTOR + UNROLL * place for place in range(len(self.vectors))]
        if not self.kept:
            parts += self._loads(self._inputs_again, group)
            slots += [INPUT + KEPT_ACCESSES * place for place in range(len(self._inputs_again))]
        parts.append((self._addresses(number * (len(slots) + len(self.outputs))), 0))
        stores = [self._accesses(Kind.STORE, tensor, group, 0) for tensor in self.outputs]
        for place, elements in enumerate(self._elements(group).tolist()):
            wait = sum(1 << slot + place for slot in slots) | 1 << TOTAL | (1 << SCALAR if self.scalars_in else 0)
            slot = OUTPUT if self.costs.out_clk else OUTPUT + place  # one slot: each access waits for the one before
            result = {"slot": slot, "wait": wait | (1 << OUTPUT if self.costs.out_clk else 0)}
            latency_clk = max(LATENCY_CLK, self.costs.out_clk * elements)
            if self.sfu:
                parts.append((compute(Pipe.SFU, self.sfu * elements, SFU_LATENCY_CLK, wait=wait), 0))
            parts.append((compute(self._pipe, max(1, self.fma * elements), latency_clk, **result), 0))
            for tensor, store in zip(self.outputs, stores, strict=True):
                one = store[place : place + 1]
                one["wait"] = np.uint64(1 << slot)
                parts.append((one, tensor.pitch(self.cols)))
        return parts

    def _scalars(self, kind: Kind, addresses: tuple[int, ...]) -> list[tuple[np.ndarray, int]]:
        """Accesses to the scalars of row 0."""
        if not addresses:
            return []
        slot, wait = (SCALAR, 0) if kind == Kind.LOAD else (NO_SLOT, 1 << TOTAL)
        base, width_bytes = np.array(addresses), SCALAR_BYTES
        made = access(kind, len(addresses), lanes=1, width_bytes=width_bytes, base=base, slot=slot, wait=wait)
        return [(made, SCALAR_BYTES)]

    def _stored_partials(self, place: int) -> list[np.ndarray]:
        """Stores of a warp's column sums in workgroup 0."""
        mine = np.arange(place, self.row_accesses, self.row_warps)
        return [self._accesses(Kind.STORE, Tensor(address, SCALAR_BYTES), mine, 0) for address in self.partials]


def _steps(parts: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """The step of each event."""
    return np.concatenate([np.full(len(events), step) for events, step in parts])


def _groups(accesses: np.ndarray, size: int) -> list[np.ndarray]:
    return [accesses[first : first + size] for first in range(0, len(accesses), size)]
