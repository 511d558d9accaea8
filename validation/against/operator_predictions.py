"""Blind predictions: time of operators at the shapes of published models on machines that we have no such data of.

`python -m validation.against.operator_predictions` simulates every kernel of `predictions/operator_shapes.csv` on each
machine and writes `predictions/operators_<machine>.csv`. The files were committed before any measurement of these
kernels on these machines was at hand. Nothing in them is calibrated for an operator: the launch is that of the preset.
An operator whose data type a machine lacks has no row.
"""

import csv
from dataclasses import asdict, replace
from pathlib import Path

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from tracer.kernels import make_kernels
from traces.errors import UserError

FOLDER = Path(__file__).parents[1] / "predictions"
SHAPES = FOLDER / "operator_shapes.csv"
MACHINES = ("h200", "mi210")
FIGURES = ("time_ns", "launch_ns", "dram_read_bytes", "dram_write_bytes", "flops", "bound_by")
"""Figures of an operator in an empty L2; writes that stay in L2 are not in them."""
WARM = "warm_time_ns"
"""Time of the same operator when it has just run before."""


def predicted(preset: Preset, text: str, store: Store) -> list[str | int | float]:
    """FIGURES and WARM of an operator.

    Raises:
        UserError: the machine cannot run it.
    """
    kernels = make_kernels(text, gpu_facts(preset.machine))
    twice = run_or_get(kernel_run(preset, kernels, L2State.WARM, extrapolate=False), store).result
    empty = asdict(figures_of(replace(twice, kernels=twice.kernels[: len(kernels)]), preset, kernels))
    return [*(empty[name] for name in FIGURES), figures_of(twice, preset, kernels).time_ns]


def main() -> None:
    store = Store()
    with SHAPES.open(encoding="utf-8", newline="") as file:
        shapes = list(csv.DictReader(file))
    for machine in MACHINES:
        preset = load_preset(machine)
        with (FOLDER / f"operators_{machine}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("model", "kernel", *FIGURES, WARM))
            for shape in shapes:
                try:
                    row = predicted(preset, shape["kernel"], store)
                except UserError:
                    continue
                writer.writerow((shape["model"], shape["kernel"], *row))
                file.flush()


if __name__ == "__main__":
    main()
