"""Blind predictions: time of operators and GEMMs at the shapes of published models on machines without such data.

`python -m validation.against.operator_predictions` simulates every kernel of `predictions/operator_shapes.csv` and of
`predictions/gemm_shapes.csv` on each machine, and writes `predictions/operators_<machine>.csv` and
`gemms_<machine>.csv`. The files were committed before any measurement of these kernels on these machines was at hand.
Nothing in them is calibrated for an operator: the launch is that of the preset. GEMMs have the library's kernels; their
weights have K adjacent (`b_layout=column`, as `torch.nn.Linear` keeps them) or are row-major.
An operator whose data type a machine lacks has no row.
"""

from contextlib import suppress
from dataclasses import asdict, replace
from itertools import product

import click

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.result import RunResult
from sim.run.store import Store, run_or_get
from tracer.kernels import make_kernels
from traces.errors import UserError
from traces.source import KernelSource
from validation.against.gpu_kernels import LISTS, PREDICTIONS, shapes
from validation.csv_file import write_csv

MACHINES = ("h100_sxm", "h200", "mi210")
FIGURES = ("time_ns", "launch_ns", "dram_read_bytes", "dram_write_bytes", "flops", "bound_by")
"""Figures of an operator in an empty L2; writes that stay in L2 are not in them."""
WARM = "warm_time_ns"
"""Time of the same operator when it has just run before; not of GEMMs, whose weights rarely stay in L2."""
KIND = "blind"
COLUMNS = ("model", "kernel", *FIGURES, WARM, "kind")


def predicted(preset: Preset, text: str, store: Store) -> list[str | int | float]:
    """FIGURES and WARM of an operator.

    Raises:
        UserError: the machine cannot run it.
    """
    kernels = make_kernels(text, gpu_facts(preset.machine))
    if text.startswith("gemm:"):
        once = run_or_get(kernel_run(preset, kernels, L2State.EMPTY, accuracy=0.0), store).result
        return [*_figures(once, preset, kernels), ""]
    twice = run_or_get(kernel_run(preset, kernels, L2State.WARM, accuracy=0.0), store).result
    first = replace(twice, kernels=twice.kernels[: len(kernels)])
    return [*_figures(first, preset, kernels), figures_of(twice, preset, kernels).time_ns]


def _figures(result: RunResult, preset: Preset, kernels: tuple[KernelSource, ...]) -> list[str | int | float]:
    found = asdict(figures_of(result, preset, kernels))
    return [found[name] for name in FIGURES]


@click.command()
@click.option("--only", type=click.Choice(LISTS), default=None, help="Only this list; default: all.")
def main(only: str | None) -> None:
    store = Store()
    for of, machine in product([only] if only else LISTS, MACHINES):
        preset = load_preset(machine)
        rows = []
        for shape in shapes(of):
            with suppress(UserError):  # the machine lacks the data type
                rows.append((shape["model"], shape["kernel"], *predicted(preset, shape["kernel"], store), KIND))
        write_csv(PREDICTIONS / f"{of}s_{machine}.csv", COLUMNS, rows)


if __name__ == "__main__":
    main()
