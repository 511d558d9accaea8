"""Kernels simulated in part, against whole runs.

`python -m validation.against.extrapolation --save` writes `tables/extrapolation.md`. The kernels are drawn at random
(`drawn`) and are other ones than those with which `sim.run.extrapolation` was developed (`extrapolation_notes.md`).
Each is simulated with `--accuracy 1%`. If something was omitted, it is simulated whole too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time

import click

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.results import RunResult
from sim.run.accuracy import accuracy_text
from sim.run.extrapolation import OF_WAVES, TIME_ERROR, TRAFFIC_ERROR, TRAFFIC_PER_TIME, WAVES
from sim.run.one_gpu import simulate
from sim.run.short_kernel import wave_of
from tracer.kernels import make_kernels
from tracer.sequence import CommandSequence
from traces.command.document import Heading, Table, Text, notes, table_line, to_markdown, write_page
from traces.units import PS_PER_US

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "extrapolation_notes.md"
TABLE = HERE / "tables" / "extrapolation.md"
ACCURACY = 0.01
PRESETS = ("t3_2024", "v100", "a100_80g", "mi210")
KERNELS_DRAWN = 20
SEED = 20261122
LEAST_WAVES, MOST_WAVES = 20, 45
SIZES = {64: "2x2", 128: "2x2"}
"""Edge of a square tile -> warps."""
COLUMNS = (
    *("kernel", "machine", "waves", "simulated", "whole (us)", "in part (us)", "error of time", "stated"),
    *("error of DRAM traffic", "stated", "of reads", "of writes", "CPU s"),
)
PERCENT = 100


@dataclass(frozen=True)
class Case:
    """A kernel by its text, on a preset."""

    text: str
    preset: str


def waves_of(case: Case) -> float:
    """Number of waves of a case."""
    machine = load_preset(case.preset).machine
    (kernel,) = make_kernels(case.text, gpu_facts(machine))
    return kernel.info.workgroups / wave_of(kernel.info, machine)


def gemm_text(random: Random, preset: Preset, waves: float) -> str:
    """A GEMM with a random tile, order, K and N, and with the M that gives about this number of waves."""
    tile = random.choice(list(SIZES))
    order = random.choice(["row", "column", "grouped"])
    n, k = random.randrange(1000, 9000, 8), random.randrange(64, 200, 8)

    def text(m: int) -> str:
        return f"gemm:m={m},n={n},k={k},tile={tile}x{tile}x32,warps={SIZES[tile]},order={order}"

    return with_waves(text, 8192, 8, preset, waves)


def operator_text(random: Random, preset: Preset, waves: float) -> str:
    """An operator of random width, with the rows, or sequences, that give about this number of waves."""
    name = random.choice(["residual", "layernorm", "rmsnorm", "softmax", "gelu", "flash_attention"])
    if name == "flash_attention":
        heads, seq = random.choice([8, 12, 16]), random.choice([256, 384, 512])
        return with_waves(lambda b: f"{name}:batch={b},heads={heads},kv_heads={heads},seq={seq}", 64, 1, preset, waves)
    cols = random.randrange(768, 4096, 64)
    return with_waves(lambda rows: f"{name}:rows={rows},cols={cols}", 65536, 8, preset, waves)


def with_waves(text: Callable[[int], str], tried: int, step: int, preset: Preset, waves: float) -> str:
    """The text with the number, a multiple of step, that gives about this many waves. tried: a number to begin with."""
    return text(max(step, round(tried * waves / waves_of(Case(text(tried), preset.name)) / step) * step))


def drawn() -> Iterator[Case]:
    """The kernels of the table: twelve GEMMs and eight operators."""
    random = Random(SEED)
    for number in range(KERNELS_DRAWN):
        preset = load_preset(PRESETS[number % len(PRESETS)])
        kind = operator_text if number % 5 in (3, 4) else gemm_text
        yield Case(kind(random, preset, random.uniform(LEAST_WAVES, MOST_WAVES)), preset.name)


@dataclass(frozen=True)
class Outcome:
    """A case in part and whole; the whole run is the same one if nothing was omitted.

    Attributes:
        figures: of the run in part (`RunResult.extrapolation`).
        part, whole: as from `measured`.
    """

    case: Case
    figures: dict[str, float]
    part: tuple[int, int, int]
    whole: tuple[int, int, int]
    part_cpu_s: float
    whole_cpu_s: float

    def errors(self) -> tuple[float, float, float, float]:
        """Relative errors of time, traffic, reads and writes."""
        pairs = [*zip(self.part, self.whole, strict=True)]
        pairs.insert(1, (sum(self.part[1:]), sum(self.whole[1:])))
        time, traffic, reads, writes = (part / whole - 1 for part, whole in pairs)
        return time, traffic, reads, writes

    def kept(self) -> bool:
        """Are the errors of time and traffic within the stated ones?"""
        time, traffic, *_ = self.errors()
        return not self.figures or (
            abs(time) <= self.figures[TIME_ERROR] and abs(traffic) <= self.figures[TRAFFIC_ERROR]
        )


def measured(result: RunResult) -> tuple[int, int, int]:
    """Time of the kernel in ps, DRAM reads and writes in columns."""
    return (result.kernels[0].time_ps, result.totals["hbm.read_columns"], result.totals["hbm.write_columns"])


def outcome(case: Case) -> Outcome:
    """Run a case in part and, if something was omitted, whole."""
    preset = load_preset(case.preset)
    source = CommandSequence(make_kernels(case.text, gpu_facts(preset.machine)))
    began_s = process_time()
    part = simulate(source, preset, accuracy=ACCURACY)
    middle_s = process_time()
    whole = simulate(source, preset) if part.extrapolation else part
    part_s, whole_s = middle_s - began_s, process_time() - middle_s
    return Outcome(case, part.extrapolation, measured(part), measured(whole), part_s, whole_s)


def percent(value: float, sign: str = "+") -> str:
    return f"{PERCENT * value:{sign}.2f} %"


def table_row(found: Outcome) -> list[str]:
    """One row of the table."""
    cells = [found.case.text, found.case.preset]
    figures = found.figures
    if not figures:
        waves = f"{waves_of(found.case):.1f}"
        return [*cells, waves, "all", f"{found.whole[0] / PS_PER_US:,.1f}", *["-"] * 7, f"{found.part_cpu_s:.1f}"]
    time, traffic, reads, writes = found.errors()
    cells += [f"{figures[OF_WAVES]}", f"{figures[WAVES]}"]
    cells += [f"{each[0] / PS_PER_US:,.1f}" for each in (found.whole, found.part)]
    cells += [percent(time), percent(figures[TIME_ERROR], ""), percent(traffic), percent(figures[TRAFFIC_ERROR], "")]
    return [*cells, percent(reads), percent(writes), f"{found.whole_cpu_s:.1f} / {found.part_cpu_s:.1f}"]


def report(outcomes: list[Outcome]) -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    cut = [each for each in outcomes if each.figures]
    times, traffic = [abs(each.errors()[0]) for each in cut], [abs(each.errors()[1]) for each in cut]
    head = (
        f"Generated by `python -m validation.against.extrapolation --save`: {len(outcomes)} kernels of {LEAST_WAVES} "
        f"to {MOST_WAVES} waves, drawn with the seed {SEED}. Asked: `--accuracy {accuracy_text(ACCURACY)}`, so time "
        f"within {ACCURACY:.0%}, DRAM reads and writes together within {TRAFFIC_PER_TIME * ACCURACY:.0%}. `simulated`: "
        "waves; `all`: the waves did not predict the rest, the run is whole and exact. `stated`: the error that the "
        "run itself states. CPU seconds: whole / in part, on a shared machine."
    )
    saved = 1 - sum(each.part_cpu_s for each in cut) / sum(each.whole_cpu_s for each in cut)
    summary = (
        f"{len(cut)} of {len(outcomes)} simulated in part: error of time {percent(sum(times) / len(cut), '')} in the "
        f"mean, {percent(max(times), '')} at most; of traffic {percent(max(traffic), '')} at most. The stated errors "
        f"hold for {sum(each.kept() for each in cut)} of {len(cut)}. CPU saved in these: {saved:.0%}."
    )
    title = Heading("Kernels simulated in part, against whole runs", 1)
    return to_markdown([title, Text(head), Table(COLUMNS, [*map(table_row, outcomes)]), Text(summary), notes(NOTES)])


@click.command()
@click.option("--only", default="", help="Only kernels whose text or preset contains this; prints their rows.")
@click.option("--list", "as_list", is_flag=True, help="Print the kernels and simulate nothing.")
@click.option("--save", is_flag=True, help=f"Write tables/{TABLE.name}.")
def main(only: str, as_list: bool, save: bool) -> None:
    outcomes = []
    for case in drawn():
        if as_list:
            click.echo(f"{case.text} {case.preset}")
        elif only in f"{case.text} {case.preset}":
            outcomes.append(outcome(case))
            click.echo(table_line(table_row(outcomes[-1])))
    if save and not only:
        write_page(TABLE, report(outcomes))


if __name__ == "__main__":
    main()
