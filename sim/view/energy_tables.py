"""Energy tables on stdout: of one run by unit, of the configurations of a scenario beside each other."""

from collections.abc import Mapping

from sim.energy import Energy, EnergyPreset, energy_of
from sim.scenario.result import NEEDS, configuration_totals
from traces.command.tables import print_table

COLUMNS = ("unit", "uJ", "low", "high", "share", "bytes", "pJ/byte")
KEYS = ("uJ", "low_uJ", "high_uJ", "share", "bytes", "pJ_per_byte")


def configuration_energies(
    totals: Mapping[str, dict[str, int]], row_bytes: int, preset: EnergyPreset
) -> dict[str, Energy]:
    """Energy of each configuration whose simulations are there, of one GPU.

    Args:
        totals: sim.scenario.result.RUNS name -> "unit.counter" -> count.
        row_bytes: of the machine's DRAM.
        preset: energies.
    """
    whole = [name for name, needed in NEEDS.items() if all(run in totals for run in needed)]
    return {name: energy_of(configuration_totals(name, totals), row_bytes, preset) for name in whole}


def show_energy(energy: Energy) -> None:
    """One run, a row per unit."""
    whole = energy.as_dict()
    rows = [(unit, *(found[key] for key in KEYS)) for unit, found in whole["units"].items()]
    rows.append(("all", *(whole[key] for key in KEYS[:3]), 1.0, energy.dram_bytes, whole["pJ_per_dram_byte"]))
    print_table(f"Dynamic energy, {energy.preset} (all: per byte at the DRAM)", COLUMNS, rows)


def show_energies(energies: Mapping[str, Energy]) -> None:
    """Configurations of a scenario: uJ of one GPU by unit, and all of it per byte at the DRAM."""
    found = {name: energy.as_dict() for name, energy in energies.items()}
    first = next(iter(found.values()))
    rows = [
        (
            name,
            *(each[key] for key in KEYS[:3]),
            *(unit["uJ"] for unit in each["units"].values()),
            each["pJ_per_dram_byte"],
        )
        for name, each in found.items()
    ]
    title = f"Dynamic energy per GPU, {first['preset']}, uJ (Tracker and arbitration: none, D27)"
    print_table(title, ("configuration", "all", "low", "high", *first["units"], "pJ per DRAM byte"), rows)
