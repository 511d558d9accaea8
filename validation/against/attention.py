"""Fused attention on H100, H200 and Blackwell: blind predictions beside what others measured.

`python -m validation.against.attention` writes `tables/attention.md`. With `--predict` it first simulates all cases
(results in the store are used) and writes the column `today_us` of `predictions/attention.csv`. Its column `blind_us`
was committed before any of the measured values was at hand.

A case is one call: forward, or all kernels of the backward pass. FlashAttention 3 and 4 and cuDNN have the version of
FlashAttention that is made for the machine, FlashAttention 2 has its own.
"""

from pathlib import Path
from typing import NamedTuple

import click

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from tracer.kernels import make_kernels
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.units import NS_PER_US
from validation.csv_file import read_csv, write_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
PREDICTIONS = HERE / "predictions" / "attention.csv"
REFERENCE = HERE / "references" / "attention.csv"
NOTES = HERE / "against" / "attention_notes.md"
TABLE = HERE / "tables" / "attention.md"
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "H100": ("h100_sxm", ()),
    "H100 at 1830 MHz": ("h100_sxm", ("cu.clock_MHz=1830", "cu.tensor_macs_per_clk=1953")),
    "H200": ("h200", ()),
    "B200": ("b200", ()),
    "B200 at 1755 MHz": ("b200", ("cu.clock_MHz=1755", "cu.tensor_macs_per_clk=4096")),
    "GB200": ("b200", ("cu.clock_MHz=2062", "cu.tensor_macs_per_clk=4096")),
    "GB300": ("b300", ("cu.clock_MHz=2062", "cu.tensor_macs_per_clk=4096")),
    "GB300 at 1957 MHz": ("b300", ("cu.clock_MHz=1957", "cu.tensor_macs_per_clk=4096")),
}
"""GPU of a case -> preset and changes: clocks that the sources state. An H100 keeps the rate that power allows (D46).
The clock of the B200 is that of a related issue of the same author. A GB200 has 2,500 TFLOP/s
(glennklockwood.com/garden/processors/B200), its nominal rate at the clock that was sampled; GB300 as GB200 (assumed).
The blind times are those of the preset b200 at its own clock, for GB300 with twice the special-function units."""
HOPPER = ("H100", "H100 at 1830 MHz", "H200")
CALIBRATES = "F009"
"""The case that `cu.tensor_hold` of `h100_sxm` is calibrated on: it does not count in the means of today."""
ACCURACY = 0.01
COLUMNS = ("id", "gpu", "kernel", "blind_us", "today_us")
HEADER = ("software", "GPU", "kernel", "measured (us)", "TFLOP/s", "blind (us)", "error", "today (us)", "error")
MEANS_HEADER = (
    "software",
    "GPUs",
    "pass",
    "cases",
    "blind: mean absolute error",
    "mean",
    "today: mean absolute",
    "mean",
)
SOFTWARE = ("FlashAttention 3", "FlashAttention 4", "cuDNN", "FlashAttention 2")


class Case(NamedTuple):
    """A call. kernel: its text. Times without launch."""

    id: str
    gpu: str
    kernel: str
    blind_us: float
    today_us: float

    @property
    def preset(self) -> Preset:
        return load_preset(*MACHINES[self.gpu])

    @property
    def direction(self) -> str:
        return "backward" if "backward" in self.kernel else "forward"


class Measured(NamedTuple):
    """What others measured of a case."""

    software: str
    time_us: float
    tera_flop_per_s: float


def cases() -> list[Case]:
    """In the order of the file. A time that is not there is 0."""
    return [
        Case(row["id"], row["gpu"], row["kernel"], float(row["blind_us"] or 0), float(row["today_us"] or 0))
        for row in read_csv(PREDICTIONS)
    ]


def measured() -> dict[str, Measured]:
    """Id -> measurement."""
    return {
        row["id"]: Measured(row["software"], float(row["time_us"]), float(row["tera_flop_per_s"]))
        for row in read_csv(REFERENCE)
    }


def simulated_us(case: Case, store: Store) -> float:
    """Time of the kernels without launch."""
    preset = case.preset
    kernels = make_kernels(case.kernel, gpu_facts(preset.machine))
    run = kernel_run(preset, kernels, L2State.EMPTY, ACCURACY)
    figures = figures_of(run_or_get(run, store).result, preset, kernels)
    return (figures.time_ns - figures.launch_ns) / NS_PER_US


def errors(direction: str, hopper: bool, software: str, today: bool) -> list[float]:
    """Signed relative errors of the cases of a kind. software: how its name begins."""
    found = measured()
    chosen = [
        (case, found[case.id].time_us)
        for case in cases()
        if case.direction == direction and (case.gpu in HOPPER) == hopper
        and found[case.id].software.startswith(software) and not (today and case.id == CALIBRATES)
    ]  # fmt: skip
    return [(case.today_us if today else case.blind_us) / time_us - 1 for case, time_us in chosen]


def _means() -> Table:
    rows = []
    for software in ("", *SOFTWARE):
        for hopper in (True, False):
            for direction in ("forward", "backward"):
                blind, today = (errors(direction, hopper, software, now) for now in (False, True))
                if blind:
                    cells = [
                        f"{value:{sign}.1%}"
                        for found in (blind, today)
                        for value, sign in zip(mean_errors(found), ("", "+"), strict=True)
                    ]
                    gpus = "Hopper" if hopper else "Blackwell"
                    rows.append([software or "all", gpus, direction, str(len(blind)), *cells])
    return Table(MEANS_HEADER, rows)


def _row(case: Case, found: Measured) -> list[str]:
    cells = [f"{found.time_us:,.1f}", f"{found.tera_flop_per_s:,.0f}"]
    for ours_us in (case.blind_us, case.today_us):
        cells += [f"{ours_us:,.1f}", f"{ours_us / found.time_us - 1:+.1%}"]
    cells[-1] += " (calibrates)" if case.id == CALIBRATES else ""
    return [found.software, case.gpu, case.kernel.removeprefix("flash_attention:"), *cells]


def table() -> str:
    """The page."""
    found = measured()
    blocks: list[Block] = [
        Heading("Fused attention on Hopper and Blackwell", 1),
        Text(
            "Generated by `python -m validation.against.attention`. Measured by others: "
            "`validation/references/attention.csv`. Ours, without launch: `validation/predictions/attention.csv`."
        ),
        _means(),
        notes(NOTES),
        Heading("All cases", 2),
        Text("TFLOP/s: of the source, or of its time; with causality half of the products count."),
        Table(HEADER, [_row(case, found[case.id]) for case in cases()]),
    ]
    return to_markdown(blocks)


@click.command()
@click.option("--predict", is_flag=True, help="Simulate, and write today's times anew.")
def main(predict: bool) -> None:
    """Write the page."""
    if predict:
        store = Store()
        rows = [(*case[:3], f"{case.blind_us:.2f}", f"{simulated_us(case, store):.2f}") for case in cases()]
        write_csv(PREDICTIONS, COLUMNS, rows)
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
