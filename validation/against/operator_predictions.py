"""Blind predictions: time of operators at the shapes of published models on machines that we have no such data of.

`python -m validation.against.operator_predictions` simulates every kernel of `predictions/operator_shapes.csv` on each
machine and writes `predictions/operators_<machine>.csv`. The files were committed before any measurement of these
kernels on these machines was at hand. Nothing in them is calibrated for an operator: the launch is that of the preset.
L2 is dirty, as in the middle of a model. An operator whose data type a machine lacks has no row.
"""

import csv
from dataclasses import asdict
from pathlib import Path

from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run, kernels_for
from sim.run.store import Store, run_or_get
from traces.errors import UserError

FOLDER = Path(__file__).parents[1] / "predictions"
SHAPES = FOLDER / "operator_shapes.csv"
MACHINES = ("h200", "mi210")
FIGURES = ("time_ns", "launch_ns", "dram_read_bytes", "dram_write_bytes", "flops", "bound_by")


def predicted(preset: Preset, text: str, store: Store) -> list[str | int | float]:
    """FIGURES of a kernel.

    Raises:
        UserError: the machine cannot run it.
    """
    kernels = kernels_for(preset, text)
    result = run_or_get(kernel_run(preset, kernels, L2State.DIRTY, extrapolate=False), store).result
    figures = asdict(figures_of(result, preset, kernels))
    return [figures[name] for name in FIGURES]


def main() -> None:
    store = Store()
    with SHAPES.open(encoding="utf-8", newline="") as file:
        shapes = list(csv.DictReader(file))
    for machine in MACHINES:
        preset = load_preset(machine)
        with (FOLDER / f"operators_{machine}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("model", "kernel", *FIGURES))
            for shape in shapes:
                try:
                    row = predicted(preset, shape["kernel"], store)
                except UserError:
                    continue
                writer.writerow((shape["model"], shape["kernel"], *row))


if __name__ == "__main__":
    main()
