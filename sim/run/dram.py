"""One HBM channel alone, driven by a stream of 64-byte requests (hbm2.md, "Reference streams").

Requests enter in order, as many per clock as the controller accepts. A request with a time does not enter before it.
Latency is from acceptance (with times: from the time of the request) to the end of the data on the bus. The run ends
with the last burst. The timing sets of HBM3 and HBM3e leave out a few delays (D43).
"""

from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec
import numpy as np

from sim.hw.address_map import ATOM_BYTES
from sim.hw.fifo import Pool, fifo_fill, fifo_head, fifo_pop, fifo_push, make_fifos
from sim.hw.hbm.channel import channel_settle, channel_step
from sim.hw.hbm.log import LOG
from sim.hw.hbm.setup import make_hbm_channels
from sim.hw.request import LINE_BYTES, NEVER, STREAMS, Op
from sim.hw.request import Stream as RequestStream
from sim.presets.check import check_hbm
from sim.run.dram_stream import Stream, read_stream
from sim.spec import HBM, Arbiter, BankMap, CacheIndex, PagePolicy, QueueOrganisation, UpdateScope
from tracer.compile.jit import compiled
from traces.errors import UserError
from traces.toml_file import read_toml
from traces.units import PS_PER_NS

SETS_FILE = Path(__file__).with_name("dram_sets.toml")
FIFO_DEPTH = 64
"""Requests that the driver keeps in front of the queue. They enter in order, so a larger depth changes nothing."""
ANSWERS_DEPTH = 1024
"""More than the reads that can be between column command and data, so the driver never blocks the channel."""
LOG_ENTRIES_PER_REQUEST = 6
"""Upper bound of the commands of one request, without refresh: PRE, ACT, columns, and rows opened again."""

REFERENCE_QUEUE = {
    "queue": QueueOrganisation.SPLIT,
    "queue_entries": 64,
    "write_high": 0.8,
    "write_low": 0.2,
    "page": PagePolicy.OPEN,
    "update_scope": UpdateScope.SAME_GROUP,
    "refresh_postpone": 8,
    "age_limit_ps": 0,
}
"""Controller of the reference runs (hbm2.md): 64 + 64 entries of 32 bytes, open page, write drain at 0.8 / 0.2."""


class DramResult(NamedTuple):
    """Time, bandwidth and counters of a stream on one channel. Latencies are 0 for a stream without reads."""

    requests: int
    cycles: int
    bandwidth_GBps: float
    avg_read_latency_ns: float
    p50_latency_ns: float
    p99_latency_ns: float
    row_hit_rate: float
    acts: int
    requests_per_s: float
    wall_s: float
    channel: np.void
    """The channel's record at the end: all counters."""
    log: np.ndarray
    """Commands (sim.hw.hbm.log.LOG); empty unless requested."""

    def summary(self) -> dict:
        """The figures as plain values, as `t3sim dram --json` prints them."""
        return {name: getattr(self, name) for name in self._fields[:-2]}


def timing_sets() -> dict[str, dict]:
    """The timing sets of `dram_sets.toml` by name."""
    return read_toml(SETS_FILE)


def channel_spec(timing_set: str = "G", bank_map: str = "RO", **queue) -> HBM:
    """Spec of one channel with a timing set and the reference controller.

    Args:
        timing_set: name of a set of `dram_sets.toml`.
        bank_map: name of a BankMap.
        queue: fields of `spec.HBM` or `spec.Timing` that differ from the set and from `REFERENCE_QUEUE`.

    Raises:
        UserError: unknown set or map.
    """
    sets = timing_sets()
    if timing_set not in sets:
        raise UserError(f"timing set {timing_set!r}: must be one of {', '.join(sets)}")
    if bank_map not in BankMap.__members__:
        raise UserError(f"bank map {bank_map!r}: must be one of {', '.join(BankMap.__members__)}")
    fields = {**sets[timing_set], **REFERENCE_QUEUE, **queue}
    timing = fields.pop("timing")
    timing = {name: fields.pop(name, value) for name, value in timing.items()}
    given = {
        "channels": 1,
        "capacity_bytes": 1 << 30,
        "interleave_bytes": LINE_BYTES,
        "index": CacheIndex.INTERLEAVE,
        "bank_map": BankMap[bank_map],
        "arbiter": Arbiter.FCFS,
        "request_ps": 1000,  # not used: the stream enters at the controller
        "extra_latency_ps": 0,
        "timing": timing,
    }
    fields = {**given, **{name: value for name, value in fields.items() if name not in ("title", "source")}}
    try:
        hbm = msgspec.convert(fields, HBM)
    except msgspec.ValidationError as error:
        raise UserError(f"DRAM channel: {error}") from None
    check_hbm(hbm)
    return hbm


class StreamState(NamedTuple):
    """The arguments of `drive`: a channel, its FIFOs, the columns of the stream, and the arrays for the results."""

    channels: np.ndarray
    fifos: np.ndarray
    pool: Pool
    op: np.ndarray
    address: np.ndarray
    earliest_ps: np.ndarray
    accepted_ps: np.ndarray
    done_ps: np.ndarray
    log: np.ndarray


def stream_state(requests: Stream, hbm: HBM, log: bool = False) -> StreamState:
    """The arguments of `drive` for an idle channel. log: allocate the command log."""
    count = requests.op.size
    fifos, pool = make_fifos([FIFO_DEPTH] * STREAMS + [ANSWERS_DEPTH])
    return StreamState(
        channels=make_hbm_channels(hbm, np.arange(STREAMS)[None], np.array([STREAMS])),
        fifos=fifos,
        pool=pool,
        op=requests.op,
        address=requests.address,
        earliest_ps=requests.earliest_ns * PS_PER_NS,
        accepted_ps=np.zeros(count, np.int64),
        done_ps=np.zeros(count, np.int64),
        log=np.zeros(LOG_ENTRIES_PER_REQUEST * count + 1000 if log else 0, LOG),
    )


def run_stream(
    stream: str | Path | Stream,
    timing_set: str = "G",
    bank_map: str = "RO",
    nmc_updates: bool = False,
    log: bool = False,
    **queue,
) -> DramResult:
    """Run a stream of 64-byte requests on one channel.

    Args:
        stream: path of a stream file (`sim.run.dram_stream`), or its columns.
        timing_set, bank_map, queue: see `channel_spec`.
        nmc_updates: treat every write as a near-memory update.
        log: keep the command log.

    Raises:
        UserError: bad file, set, map or field.
    """
    hbm = channel_spec(timing_set, bank_map, **queue)
    requests = stream if isinstance(stream, Stream) else read_stream(stream)
    op = np.where(requests.op == Op.WRITE, Op.UPDATE, requests.op) if nmc_updates else requests.op
    requests = requests._replace(op=op.astype(np.uint8))
    state = stream_state(requests, hbm, log)
    drive(*state._replace(op=requests.op[:0]))  # compiles
    start_s = perf_counter()
    drive(*state)
    wall_s = perf_counter() - start_s
    begin_ps = state.earliest_ps if state.earliest_ps.any() else state.accepted_ps
    latency_ps = (state.done_ps - begin_ps)[requests.op == Op.READ]
    return _result(state.channels[0], latency_ps, requests.op.size, wall_s, state.log)


def _result(channel: np.void, latency_ps: np.ndarray, requests: int, wall_s: float, log: np.ndarray) -> DramResult:
    latency_ns = latency_ps / PS_PER_NS if latency_ps.size else np.zeros(1)
    end_ps = int(channel["bus_end_ps"])
    acts = int(channel["acts"])
    return DramResult(
        requests=requests,
        cycles=end_ps // int(channel["period_ps"]),
        bandwidth_GBps=requests * ATOM_BYTES * PS_PER_NS / end_ps,
        avg_read_latency_ns=float(latency_ns.mean()),
        p50_latency_ns=float(np.percentile(latency_ns, 50)),
        p99_latency_ns=float(np.percentile(latency_ns, 99)),
        row_hit_rate=int(channel["row_hits"]) / requests,
        acts=acts,
        requests_per_s=requests / wall_s,
        wall_s=wall_s,
        channel=channel,
        log=log[: int(channel["commands"])],
    )


@compiled
def drive(channels, fifos, pool, op, address, earliest_ps, accepted_ps, done_ps, log):
    """Run all requests through channel 0, FIFO 0.

    Writes: accepted_ps (when the channel accepted each request), done_ps (when the data of each read was on the bus),
    log.
    """
    channel = channels[0]
    entry = fifos[channel.lanes.in_fifo[0]]
    answers = fifos[channel.out_fifo]
    # np.int64: with a plain 0, numba would compile every called function a second time for the literal.
    pushed = np.int64(0)
    accepted = np.int64(0)
    now_ps = np.int64(0)
    while True:
        while pushed < op.size and fifo_fill(entry) < entry.limit:
            _push(entry, pool, pushed, op[pushed], address[pushed], earliest_ps[pushed])
            pushed += 1
        wake_ps = channel_step(channel, fifos, pool, now_ps, log)
        while accepted < entry.head:
            accepted_ps[accepted] = now_ps
            accepted += 1
        while fifo_fill(answers) > 0:
            answer = fifo_head(answers, pool)
            done_ps[answer.tag] = answer.ready_ps
            fifo_pop(answers)
        if wake_ps == NEVER:
            channel_settle(channel, channel.bus_end_ps, log)
            return
        now_ps = wake_ps


@compiled
def _push(entry, pool, index, op, address, earliest_ps):
    request = fifo_push(entry, pool)
    request.line = address // LINE_BYTES * LINE_BYTES
    request.sectors = 0b1100 if address & ATOM_BYTES else 0b0011
    request.full = request.sectors
    request.op = op
    request.stream = RequestStream.COMPUTE_READ if op == Op.READ else RequestStream.COMPUTE_WRITE
    request.tag = index
    request.ready_ps = earliest_ps
    request.born_ps = earliest_ps
