"""Print energy tables: one run by unit, or the configurations of a scenario side by side."""

from collections.abc import Iterable, Mapping

from sim.counters import add_totals
from sim.energy import Energy, EnergyPreset, energy_of
from sim.results import RunResult
from sim.scenario.result import NEEDS
from sim.view.heading import is_of_gpu_0
from traces.command.tables import print_table

COLUMNS = ("unit", "uJ", "low", "high", "share", "bytes", "pJ/byte")
KEYS = ("uJ", "low_uJ", "high_uJ", "share", "bytes", "pJ_per_byte")


def configuration_energies(runs: Mapping[str, RunResult], preset: EnergyPreset) -> dict[str, Energy]:
    """Energy per GPU of each configuration whose runs are complete.

    Args:
        runs: of one machine, by the names of sim.scenario.result.RUNS.
        preset: energies of the events.
    """
    complete = {name: [runs[run] for run in needed] for name, needed in NEEDS.items() if set(needed) <= runs.keys()}
    return {
        name: energy_of(add_totals(run.totals for run in own), own[0].preset.machine.hbm.row_bytes, preset)
        for name, own in complete.items()
    }


def show_energy(energy: Energy) -> None:
    """Print the energy of one run, one row per unit."""
    whole = energy.as_dict()
    rows = [(unit, *(figures[key] for key in KEYS)) for unit, figures in whole["units"].items()]
    rows.append(("all", *(whole[key] for key in KEYS[:3]), 1.0, energy.dram_bytes, whole["pJ_per_dram_byte"]))
    print_table(f"Dynamic energy, {energy.preset} (all: per byte at the DRAM)", COLUMNS, rows)


def show_energies(energies: Mapping[str, Energy], runs: Iterable[RunResult]) -> None:
    """Print the energy of configurations of a scenario, from its runs: uJ per GPU by unit, and energy per DRAM byte."""
    figures = {name: energy.as_dict() for name, energy in energies.items()}
    first = next(iter(figures.values()))
    rows = [
        (
            name,
            *(energy[key] for key in KEYS[:3]),
            *(unit["uJ"] for unit in energy["units"].values()),
            energy["pJ_per_dram_byte"],
        )
        for name, energy in figures.items()
    ]
    whose = "of GPU 0" if is_of_gpu_0(runs) else "per GPU"
    title = f"Dynamic energy {whose}, {first['preset']}, uJ (Tracker and arbitration: none, D27)"
    print_table(title, ("configuration", "all", "low", "high", *first["units"], "pJ per DRAM byte"), rows)
