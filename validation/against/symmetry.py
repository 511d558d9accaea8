"""One GPU for all against every GPU: `python -m validation.against.symmetry` prints tables, `--save` writes them.

The fused GEMM (T3, round-robin) of some shapes runs on N GPUs of `t3_2024`. First every GPU is simulated. Then one GPU
represents all: GPU 0, as in `t3sim t3`, then each of the others. Traffic must be equal to the byte on every GPU:
updates of the GEMM, reads of the DMA engines, updates that arrive, bytes on the links. Reads of A and B depend on the
content of L2. A second table shows how much a time depends on delays that are too small to matter on a real machine. So
a third table compares means over many runs in which workgroups start up to 1 ns late.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import hypot, sqrt
from pathlib import Path
from statistics import mean, stdev

from sim.collective import ledger
from sim.collective.chunks import even_chunks
from sim.presets import load_preset
from sim.run.cluster_result import end_of, moved_bytes
from sim.run.many_gpus import fused_cluster
from sim.spec import Arbiter
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.kernels import make_gemm
from tracer.workloads import DEFAULT_KERNEL
from traces.command.document import Block, Heading, Table, Text, table_line, to_markdown
from traces.units import PS_PER_US

TABLE = Path(__file__).parents[1] / "tables" / "symmetry.md"
PERCENT = 100
ROWS = (("4096x4096x512", 2), ("4096x4096x512", 4), ("4096x4096x512", 8), ("5120x4096x512", 8))
"""Workload or MxNxK of one GPU, and N."""
DELAYED = (("4096x4096x512", 8),)
DELAYS = (
    *(("dispatch.launch_ps=1",), ("link.latency_ps=500001",), ("dispatch.workgroup_ps=715",)),
    *(("dispatch.jitter_ps=1000", f"dispatch.seed={seed}") for seed in (1, 2)),
)
"""1 ps later, 1 ps of latency, 1 ps more between workgroups, workgroups up to 1 ns late."""
SEEDED = tuple((shape, gpus, max(2, 16 // gpus)) for shape, gpus in ROWS)
"""Shape, N and number of seeds of the start jitter. Each seed is run with every GPU, and with each GPU for all."""
COLUMNS = (
    *("shape", "N", "every GPU: fastest, us", "mean", "slowest", "one for all: GPU 0, us", "each of them, mean"),
    *("least", "most", "slowest against GPU 0, %", "mean against mean, %", "traffic equal", "reads of A and B, %"),
)


MEAN_COLUMNS = (
    *("shape", "N", "seeds", "every GPU: mean of all, us", "+/-", "mean of the slowest", "one for all: runs", "mean"),
    *("+/-", "least", "most", "mean against mean, %", "+/-"),
)
"""+/-: standard error of a mean."""


@dataclass(frozen=True)
class Measurement:
    """Results of a run, one value per simulated GPU.

    Attributes:
        ends_ps: end of its work.
        reads_bytes: bytes read by its GEMM.
        traffic: bytes of the other streams, and bytes sent over its links.
        exactly_once: verdict of the ledger over all GPUs.
    """

    ends_ps: tuple[int, ...]
    reads_bytes: tuple[int, ...]
    traffic: tuple[tuple[int, ...], ...]
    exactly_once: bool


def measure(
    problem: GemmProblem, gpus: int, *, stands_for_all: int | None = None, overrides: Sequence[str] = ()
) -> Measurement:
    """Run the fused GEMM. stands_for_all: the GPU that represents all; None = every GPU is simulated."""
    source = GemmSource(problem, DEFAULT_KERNEL)
    cluster, launches = fused_cluster(
        *(load_preset("t3_2024", tuple(overrides)).machine, source),
        *(even_chunks(source.tiles, gpus), Arbiter.ROUND_ROBIN),
        explicit=stands_for_all is None,
        stands_for_all=stands_for_all or 0,
    )
    cluster.run(launches)
    moved = [moved_bytes(gpu).tolist() for gpu in cluster.gpus]
    sent = [int(gpu.node.ports["bytes"].sum()) for gpu in cluster.gpus]
    outputs = [gpu.node.output for gpu in cluster.gpus]
    verdict = ledger.close(cluster.plans, [out.tiles for out in outputs], [out.wavefronts for out in outputs])
    return Measurement(
        tuple(end_of(gpu) for gpu in cluster.gpus),
        tuple(streams[0] for streams in moved),
        tuple((*streams[1:], link) for streams, link in zip(moved, sent, strict=True)),
        verdict.exactly_once,
    )


def problem_of(name: str) -> GemmProblem:
    """The problem of `model/layer/tpN` or `MxNxK`."""
    return make_gemm(f"gemm:{'workload' if '/' in name else 'shape'}={name}").source.problem


def cells(name: str, gpus: int, every: Measurement, ones: Sequence[Measurement]) -> list[str]:
    """A row of the first table. ones: one run for each GPU that represents all."""
    alone = [run.ends_ps[0] for run in ones]
    reads = [run.reads_bytes[0] for run in ones]
    equal = {*every.traffic} == {run.traffic[0] for run in ones} and len({*every.traffic}) == 1
    sound = every.exactly_once and all(run.exactly_once for run in ones)
    return [
        *(name, str(gpus)),
        *(_us(time_ps) for time_ps in (min(every.ends_ps), mean(every.ends_ps), max(every.ends_ps))),
        *(_us(time_ps) for time_ps in (alone[0], mean(alone), min(alone), max(alone))),
        *(_percent(max(every.ends_ps) / alone[0]), _percent(mean(every.ends_ps) / mean(alone))),
        *("yes" if equal and sound else "NO", _percent(mean(every.reads_bytes) / mean(reads))),
    ]


def mean_cells(name: str, gpus: int, every: Sequence[Measurement], ones: Sequence[Measurement]) -> list[str]:
    """A row of the third table. every: one run per seed; ones: one run per seed and per GPU that represents all."""
    means_ps = [mean(run.ends_ps) for run in every]
    alone_ps = [run.ends_ps[0] for run in ones]
    ratio = mean(means_ps) / mean(alone_ps)
    doubt = ratio * hypot(_error_ps(means_ps) / mean(means_ps), _error_ps(alone_ps) / mean(alone_ps))
    return [
        *(name, str(gpus), str(len(every)), _us(mean(means_ps)), _us(_error_ps(means_ps))),
        *(_us(mean(max(run.ends_ps) for run in every)), str(len(ones)), _us(mean(alone_ps))),
        *(_us(_error_ps(alone_ps)), _us(min(alone_ps)), _us(max(alone_ps)), _percent(ratio), f"{PERCENT * doubt:.2f}"),
    ]


def _error_ps(times_ps: Sequence[float]) -> float:
    """Standard error of the mean."""
    return stdev(times_ps) / sqrt(len(times_ps))


def _us(time_ps: float) -> str:
    return f"{time_ps / PS_PER_US:,.1f}"


def _percent(ratio: float) -> str:
    return f"{PERCENT * (ratio - 1):+.2f}"


def _shown(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> Table:
    """A table. Each row is printed as soon as it is known."""
    print(table_line(columns), table_line(["---"] * len(columns)), sep="\n")
    kept = []
    for row in rows:
        kept.append(row)
        print(table_line(row), flush=True)
    return Table(columns, kept, ())


def agreement_rows(rows: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    for name, gpus in rows:
        problem = problem_of(name)
        every, ones = measure(problem, gpus), [measure(problem, gpus, stands_for_all=gpu) for gpu in range(gpus)]
        yield cells(name, gpus, every, ones)


def delay_rows(rows: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Rows of the second table: end of GPU 0 for all without a delay, and its change with each of DELAYS."""
    for name, gpus in rows:
        problem = problem_of(name)
        undelayed, *delayed = (measure(problem, gpus, stands_for_all=0, overrides=delay) for delay in ((), *DELAYS))
        later = [_percent(run.ends_ps[0] / undelayed.ends_ps[0]) for run in delayed]
        yield [name, str(gpus), _us(undelayed.ends_ps[0]), *later]


def mean_rows(rows: Sequence[tuple[str, int, int]]) -> Iterator[list[str]]:
    """Rows of the third table: means over seeds of the start jitter."""
    for name, gpus, seeds in rows:
        problem = problem_of(name)
        jitters = [("dispatch.jitter_ps=1000", f"dispatch.seed={seed}") for seed in range(1, seeds + 1)]
        every = [measure(problem, gpus, overrides=jitter) for jitter in jitters]
        ones = [measure(problem, gpus, stands_for_all=g, overrides=jitter) for jitter in jitters for g in range(gpus)]
        yield mean_cells(name, gpus, every, ones)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write tables/{TABLE.name}")
    arguments = parser.parse_args()
    delay_columns = ["shape", "N", "us", *(f"{', '.join(delay)}, %" for delay in DELAYS)]
    made = f"Generated by `python -m validation.against.symmetry --save` on {date.today().isoformat()}"
    head = f"{made}, preset t3_2024."
    blocks: list[Block] = [
        Heading("One GPU for all against every GPU", 1),
        Text(f"{head} `docs/t3.md` explains the consequences."),
        _shown(COLUMNS, agreement_rows(ROWS)),
        Heading("GPU 0 for all, with small delays", 2),
        _shown(delay_columns, delay_rows(DELAYED)),
        Heading("Means over start jitter of up to 1 ns", 2),
        _shown(MEAN_COLUMNS, mean_rows(SEEDED)),
    ]
    if arguments.save:
        TABLE.write_text(to_markdown(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
