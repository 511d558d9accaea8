"""One channel on the bench: all requests wait in its stream fifos with their arrival times, nobody else is there."""

from typing import NamedTuple

import numpy as np

from sim.hw.fifo import make_fifos
from sim.hw.hbm.channel import channel_settle, channel_step
from sim.hw.hbm.log import LOG
from sim.hw.hbm.setup import make_hbm_channels
from sim.hw.request import NEVER, STREAMS, Op, Stream
from sim.run.dram import channel_spec

IDLE_CLOCKS = 6000
"""The run goes on for so long after the last command, so that an idle channel shows its refreshes."""


class Access(NamedTuple):
    """One request as a test writes it; its tag is its place in the list."""

    op: int
    line: int
    sectors: int = 0b0011
    stream: int = -1  # -1: compute read or compute write
    ready_ps: int = 0

    def enters_by(self) -> int:
        """Stream fifo."""
        if self.stream >= 0:
            return self.stream
        return Stream.COMPUTE_READ if self.op == Op.READ else Stream.COMPUTE_WRITE


class Bench(NamedTuple):
    channel: np.void
    log: np.ndarray  # LOG
    answers: np.ndarray  # REQUEST, in order of the answers
    accepted_ps: np.ndarray  # per access
    end_ps: int


def bench_fifos(accesses, answers_depth=None, in_order=False):
    """Fifos and pool with every access in the fifo of its stream; (fifos, pool, tags per fifo).

    in_order: reads and writes share the fifo of the reads.
    """
    tags = [[] for _ in range(STREAMS)]
    for tag, access in enumerate(accesses):
        tags[access.enters_by() // 2 * 2 if in_order else access.enters_by()].append(tag)
    depths = [max(1, len(of_stream)) for of_stream in tags]
    fifos, pool = make_fifos([*depths, answers_depth or max(1, len(accesses))])
    for stream, of_stream in enumerate(tags):
        base = int(fifos[stream]["first"])
        for place, tag in enumerate(of_stream):
            access, slot = accesses[tag], pool.requests[base + place]
            slot["line"], slot["sectors"], slot["full"] = access.line, access.sectors, access.sectors
            slot["op"], slot["stream"], slot["tag"] = access.op, access.enters_by(), tag
            slot["ready_ps"] = slot["born_ps"] = access.ready_ps
        fifos[stream]["tail"], fifos[stream]["mask"] = len(of_stream), fifos[stream]["room"]
    return fifos, pool, tags


def run_bench(hbm, accesses, extra_calls=None, in_order=False) -> Bench:
    """Run all accesses to their end.

    Args:
        hbm: spec of the channel.
        accesses: list of Access, in time order within each stream.
        extra_calls: random generator; with it the channel is also called when it did not ask to be.
        in_order: reads and writes share a fifo (`l2.dram_order`).
    """
    fifos, pool, tags = bench_fifos(accesses, in_order=in_order)
    in_fifos = np.arange(STREAMS) // 2 * 2 if in_order else np.arange(STREAMS)
    channel = make_hbm_channels(hbm, in_fifos[None], np.array([STREAMS])).view(np.recarray)[0]
    fifos, pool = fifos.view(np.recarray), pool._replace(requests=pool.requests.view(np.recarray))
    log = np.zeros(40 * len(accesses) + 10_000, LOG).view(np.recarray)
    accepted_ps = np.full(len(accesses), -1, np.int64)
    taken = [0] * STREAMS
    now_ps = 0
    while True:
        wake_ps = int(channel_step(channel, fifos, pool, now_ps, log))
        for stream in range(STREAMS):
            while taken[stream] < fifos[stream].head:
                accepted_ps[tags[stream][taken[stream]]] = now_ps
                taken[stream] += 1
        if wake_ps == NEVER:
            break
        if extra_calls is not None and extra_calls.random() < 0.3:
            wake_ps = min(wake_ps, now_ps + int(extra_calls.integers(0, 3000)))
        now_ps = wake_ps
    end_ps = now_ps + IDLE_CLOCKS * int(channel.period_ps)
    channel_settle(channel, end_ps, log)
    out = fifos[STREAMS]
    answers = pool.requests[out.first : out.first + out.tail].copy()
    assert channel.commands <= log.size
    return Bench(channel, log[: channel.commands].copy(), answers, accepted_ps, end_ps)


def random_accesses(seed, count, *, streams=True, rows=3, spread_clk=4.0, updates=0.3, writes=0.4):
    """Random lines in few rows of all banks (many hits, conflicts and repeated addresses), random sectors and times."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(spread_clk * 1000, count)).astype(np.int64)
    accesses = []
    for ready_ps in times:
        op = Op.READ
        if random.random() < writes:
            op = Op.UPDATE if random.random() < updates else Op.WRITE
        line = int(random.integers(0, 256 * rows)) * 128
        if random.random() < 0.5:
            line = int(random.integers(0, 16)) * 2048 + int(random.integers(0, rows)) * 32768
        stream = -1
        if streams and random.random() < 0.5:
            stream = int(Stream.COMM_READ if op == Op.READ else Stream.COMM_WRITE)
        accesses.append(Access(int(op), line, int(random.integers(1, 16)), stream, int(ready_ps)))
    return accesses


def bench_spec(timing_set="G", bank_map="RO", **fields):
    """A channel spec in which every mechanism can be switched by name."""
    return channel_spec(timing_set, bank_map, **fields)
