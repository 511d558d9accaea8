"""Layer normalisation, forward: y = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row.

x and y are dense [rows, cols], weight and bias are [cols], all of one type. The kernel is built like library kernels:

* A row of at most ROW_ACCESSES warp accesses belongs to one warp; a workgroup has one row per warp. A longer row
  belongs to a whole workgroup, and the warps take its accesses in turn.
* A lane has 16 bytes per access, halved until the width divides a row.
* A warp that has at most KEPT_ACCESSES accesses of a row keeps their values in registers: x is read once (mean from
  the values, then the variance from the centred values). Otherwise x is read twice: once for mean and variance
  together, once for the output.
* Sums over lanes use shuffles. If a row belongs to several warps, sums over warps use shared memory and a barrier.
* Then weight and bias are read, UNROLL accesses of each at a time, and the output is stored. With `stats` the first
  warp of a row stores mean and 1 / sqrt(variance + epsilon), 4 bytes each.

Traffic in sectors of 32 bytes, where a row is S whole sectors:

    requested by loads     rows * S * (3 kept in registers, 4 read twice)
    requested by stores    rows * S, with `stats` 2 * rows more
    reads of L2            rows * S + 2 * S for each CU, if the row is kept and L1 holds weight and bias
    DRAM reads             (rows + 2) * S, if L2 holds weight, bias and the rows in flight
    DRAM writes            rows * S, with `stats` 2 * ceil(rows / 8) more
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tracer.data_type import DataType
from tracer.events import VECTOR_BYTES, access, compute, event, join_warps
from tracer.gemm.problem import FIRST_ADDRESS, REGION_BYTES
from tracer.parameter_kernel import ParameterKernel
from traces.bounds import Bound
from traces.errors import UserError
from traces.schema import NO_SLOT, Kind, Pipe, Space
from traces.source import KernelInfo, Workgroup

ROW_ACCESSES = 8
"""Most accesses of a row that belongs to one warp."""
KEPT_ACCESSES = 8
"""Most accesses of a row whose values a warp keeps. fp16 values take 64 registers per thread as fp32 values."""
UNROLL = 4
"""Accesses of weight, and of bias, in flight per warp."""
STAT_BYTES = 4
SETUP_INSTRUCTIONS = 16
LATENCY_CLK = 4
SHUFFLE_CLK = 25
"""Latency of one exchange between lanes."""
ADDRESS_REGISTERS = 24
"""Instruction counts, latencies and registers are assumed."""
THREADS_MAX = 1024
ADDRESS_END = 1 << 62

# Scoreboard slots: X .. X + 7 and so on
X, WEIGHT, BIAS, OUTPUT, SUM, TOTAL = 0, 8, 12, 16, 20, 21
_NO_ADDRESSES = np.empty(0, np.uint64)


@dataclass(frozen=True)
class LayerNorm(ParameterKernel):
    """The kernel trace of one layer normalisation. Buffers begin at `address`, each at a multiple of 2 MiB.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "layernorm"
    VERSION: ClassVar[int] = 1
    BOUNDS: ClassVar[dict[str, Bound]] = {
        "rows": Bound(1, 1 << 31, "far more than the tokens of a model"),
        "cols": Bound(1, 1 << 24, "far more than the hidden size of a model"),
        "warps": Bound(1, THREADS_MAX // 32, f"a workgroup has at most {THREADS_MAX} threads"),
        "address": Bound(0, ADDRESS_END, "the 62-bit address space"),
    }

    rows: int
    cols: int
    dtype: DataType = DataType.FP16
    warps: int = 8  # warps of a workgroup
    stats: bool = False  # True: mean and reciprocal deviation are stored too
    address: int = FIRST_ADDRESS
    lanes: int = 32

    def __post_init__(self):
        self.check_fields()
        self.check_lanes(self.lanes)
        if self.warps * self.lanes > THREADS_MAX:
            raise UserError(f"layernorm warps = {self.warps}: must be <= {THREADS_MAX // self.lanes}")
        if self.address % VECTOR_BYTES:
            raise UserError(f"layernorm address = {self.address}: must be a multiple of {VECTOR_BYTES}")
        if self._addresses[-1] > ADDRESS_END:
            raise UserError(f"layernorm of {self.rows} x {self.cols}: ends beyond the 62-bit address space")
        self.check_accesses(self.rows * self.row_accesses)

    @property
    def row_bytes(self) -> int:
        """Size of a row of x."""
        return self.cols * self.dtype.bytes

    @property
    def width_bytes(self) -> int:
        """Size of an access per lane."""
        return min(VECTOR_BYTES, self.row_bytes & -self.row_bytes)

    @property
    def row_accesses(self) -> int:
        """Number of warp accesses that cover a row."""
        return -(-self.row_bytes // (self.lanes * self.width_bytes))

    @property
    def row_warps(self) -> int:
        """Number of warps that share a row."""
        return 1 if self.row_accesses <= ROW_ACCESSES else self.warps

    @property
    def kept(self) -> bool:
        """True if the values of a row are kept in registers and x is read once."""
        return -(-self.row_accesses // self.row_warps) <= KEPT_ACCESSES

    @cached_property
    def info(self) -> KernelInfo:
        accesses = -(-self.row_accesses // self.row_warps) if self.kept else UNROLL
        words = accesses * self.width_bytes // self.dtype.bytes * max(1, self.dtype.bytes // 4)
        words += 2 * UNROLL * self.width_bytes // 4 + ADDRESS_REGISTERS
        return self.make_info(
            f"layernorm_{self.rows}x{self.cols}",
            workgroups=-(-self.rows * self.row_warps // self.warps),
            warps=self.warps,
            lanes=self.lanes,
            registers=-(-words // 8) * 8,
            shared_bytes=2 * STAT_BYTES * self.warps if self.row_warps > 1 else 0,
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`. They differ only in the addresses of their rows."""
        first_row = [self._warp(place) for place in range(self.row_warps)]
        rows = self.warps // self.row_warps
        numbers = np.arange(self.warps, dtype=np.uint16)
        for index in range(start, self.info.workgroups):
            own = range(index * rows, min((index + 1) * rows, self.rows))
            warps = [_moved(events, step * row) for row in own for events, step in first_row]
            idle = [event(Kind.EXIT)] * (self.warps - len(warps))
            events, first_event = join_warps(warps + idle)
            yield Workgroup(index, numbers, first_event, events, _NO_ADDRESSES)

    @cached_property
    def _addresses(self) -> tuple[int, ...]:
        """Addresses of x, y, weight, bias, mean and reciprocal deviation."""
        addresses = [self.address]
        whole, row, stat = self.rows * self.row_bytes, self.row_bytes, self.rows * STAT_BYTES
        for size in (whole, whole, row, row, stat):
            addresses.append(-(-(addresses[-1] + size) // REGION_BYTES) * REGION_BYTES)
        return tuple(addresses)

    def _warp(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Events of a warp on row 0, and for each event the distance of its addresses from row to row in bytes."""
        mine = np.arange(place, self.row_accesses, self.row_warps)
        parts = [compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)]
        for group in _groups(mine, KEPT_ACCESSES):
            parts += [self._loads(0, group, X), self._sums(len(group), wait=_slots(X, len(group)))]
        parts += self._reduction(place, 0)
        if self.kept:
            parts += [self._sums(len(mine), wait=1 << TOTAL), *self._reduction(place, 1)]
        for group in _groups(mine, UNROLL):
            parts += self._output(group)
        if self.stats and place == 0:
            mean, deviation = self._addresses[4:]
            parts.append(
                access(Kind.STORE, 2, lanes=1, width_bytes=STAT_BYTES, base=(mean, deviation), wait=1 << TOTAL)
            )
        events = np.concatenate([*parts, event(Kind.EXIT)])
        return events, self._steps(events)

    def _steps(self, events: np.ndarray) -> np.ndarray:
        """Distance from row to row in bytes, for x, y and statistics; 0 for weight, bias and other events."""
        _, _, weight, _, mean, _ = self._addresses
        rows, stats = events["base"] < weight, events["base"] >= mean
        step = np.where(rows, self.row_bytes, np.where(stats, STAT_BYTES, 0))
        return np.where((events["kind"] <= Kind.STORE) & (events["space"] == Space.GLOBAL), step, 0)

    def _loads(self, buffer: int, group: np.ndarray, slot: int) -> np.ndarray:
        """Loads of these accesses of a row, each with its slot. buffer: index in `_addresses`."""
        reach = self.lanes * self.width_bytes
        lanes = np.minimum(self.row_bytes - group * reach, reach) // self.width_bytes
        return access(
            Kind.LOAD,
            len(group),
            lanes=lanes,
            width_bytes=self.width_bytes,
            base=self._addresses[buffer] + group * reach,
            slot=slot + np.arange(len(group)),
        )

    def _sums(self, accesses: int, wait: int) -> np.ndarray:
        """Additions of a warp for the values of some accesses."""
        return compute(Pipe.FMA, self._instructions(2 * max(1, accesses)), LATENCY_CLK, slot=SUM, wait=wait)

    def _instructions(self, passes: int) -> int:
        """`passes` instructions for each value of an access that a lane holds."""
        return passes * self.width_bytes // self.dtype.bytes

    def _reduction(self, place: int, turn: int) -> list[np.ndarray]:
        """A sum over the lanes and warps of a row. Events that need the sum wait for TOTAL."""
        shuffles = self.lanes.bit_length() - 1
        own = compute(Pipe.ALU, 2 * shuffles, SHUFFLE_CLK * shuffles, slot=TOTAL, wait=1 << SUM | 1 << TOTAL)
        if self.row_warps == 1:
            return [own]
        base = STAT_BYTES * self.warps * turn  # shared memory: no warp overwrites a value that another warp still reads
        store = access(Kind.STORE, lanes=1, width_bytes=STAT_BYTES, base=base + STAT_BYTES * place, wait=1 << TOTAL)
        load = access(Kind.LOAD, lanes=self.warps, width_bytes=STAT_BYTES, base=base, slot=SUM)
        store["space"] = load["space"] = Space.SHARED
        return [own, store, event(Kind.BARRIER, slot=0), load, own]

    def _output(self, group: np.ndarray) -> list[np.ndarray]:
        """Loads of weight, bias and (if not kept) x for some accesses, then arithmetic and store of each access."""
        number = len(group)
        loads = [self._loads(2, group, WEIGHT), self._loads(3, group, BIAS)]
        slots = [WEIGHT, BIAS]
        if not self.kept:
            loads.append(self._loads(0, group, X))
            slots.append(X)
        place = np.arange(number, dtype=np.uint64)
        wait = np.uint64(sum(1 << slot for slot in slots)) << place | np.uint64(1 << TOTAL)
        results = compute(
            Pipe.FMA, self._instructions(2), LATENCY_CLK, number, slot=OUTPUT + np.arange(number), wait=wait
        )
        stores = self._loads(1, group, 0)
        stores["kind"], stores["slot"], stores["wait"] = Kind.STORE, NO_SLOT, np.uint64(1 << OUTPUT) << place
        return [*loads, np.stack([results, stores], axis=1).ravel()]


def _moved(events: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    moved = events.copy()
    moved["base"] += offsets.astype(np.uint64)
    return moved


def _groups(accesses: np.ndarray, size: int) -> list[np.ndarray]:
    return [accesses[first : first + size] for first in range(0, len(accesses), size)]


def _slots(first: int, number: int) -> int:
    """Mask of `number` slots."""
    return (1 << number) - 1 << first
