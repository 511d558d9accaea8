"""T3 beside what software can do today: sub-layers of the paper and of models of today on three machines.

`python -m validation.against.software --run MACHINE/SUB-LAYER` simulates a case in every configuration that its
machine has (results in the store are used), and keeps its figures in `tables/software.csv`. `--run MACHINE` means all
of its cases, `--configuration NAME` only that configuration. Without `--run` the figures are only written as the page
`tables/software.md`.

Software sends each chunk straight to its owner. So the GPUs of the paper's machine are joined by a switch here, with
the bandwidth of the preset's link. Published ratios of another simulator stand beside ours
(`references/cais_against_t3.csv`).
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from sim.energy import DEFAULT, load_energy
from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.result import (
    ALL_CONFIGURATIONS,
    COPY_ENGINES,
    DECOMPOSED,
    FLUX,
    LIBRARY,
    NEEDS,
    NVLS,
    SEQUENTIAL,
    SP_NVLS,
    T3,
    T3_NVLS,
    ScenarioResult,
)
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.view.energy_tables import configuration_energies
from tracer.gemm.source import GemmProblem
from tracer.models.catalogue import load_model
from tracer.workloads import PAPER_NAMES, named_sublayer
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.errors import UserError
from traces.units import MEGA, PS_PER_US
from validation.csv_file import read_csv, write_csv

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "software_notes.md"
TABLE = HERE / "tables" / "software.md"
FIGURES = TABLE.with_suffix(".csv")
PUBLISHED = HERE / "references" / "cais_against_t3.csv"
MACHINES = {
    "t3_2024": ("link.topology=switch", "link.in_switch=true"),
    "h100_sxm": (),
    "mi300x": (),
}
"""Preset -> values in place of its own."""
TODAY = ("llama-3-70b", "qwen3-32b", "llama-3-405b")
TODAY_GPUS, TODAY_TOKENS = 8, 2048
ON_CUS = ("rs", "rs_nmc", "add", "ag", "ar_nvls", "rs_nvls", "ag_nvls", "ar_library")
"""Runs in which CUs only communicate."""
MICRO = 1e-6
COLUMNS = (
    *("configuration", "time (us)", "speed-up", "GEMM (us)", "DRAM (MB)", "link (MB)"),
    *("CUs only communicate (us)", "energy (mJ)"),
)
ALIKE = {"TP-NVLS": NVLS, "SP-NVLS": SP_NVLS, "CoCoNet": DECOMPOSED, "FuseLib": FLUX, "T3-NVLS": T3_NVLS}
"""Baseline of the published ratios -> the configuration that is most like it."""
COMPARED = (SEQUENTIAL, LIBRARY, DECOMPOSED, COPY_ENGINES, FLUX, NVLS, SP_NVLS, T3_NVLS)
"""Configurations over which the speed-up of T3 is shown."""


class Case(NamedTuple):
    """A sub-layer (`model/layer/tpN`) on a machine."""

    machine: str
    sub_layer: str

    @property
    def name(self) -> str:
        return "/".join(self)


class Figures(NamedTuple):
    """Figures of a configuration, of one GPU.

    Attributes:
        gemm_ps: the GEMM, or the kernel or stage that a reduce-scatter overlaps.
        on_cus_ps: time of the runs in which CUs only communicate.
    """

    time_ps: int
    gemm_ps: int
    dram_bytes: int
    link_bytes: int
    on_cus_ps: int
    energy_nJ: int


Found = Mapping[Case, Mapping[str, Figures]]
"""Case -> configuration -> figures."""


def sub_layers() -> dict[str, tuple[GemmProblem, int]]:
    """Name -> the GEMM of one GPU, and the number of GPUs: those of the paper, then those of models of today."""
    found = {name: named_sublayer(name) for name in PAPER_NAMES}
    for model in TODAY:
        shape = load_model(model)
        for layer, width in (("op", shape.heads * shape.head_dim), ("fc2", shape.intermediate)):
            problem = GemmProblem(TODAY_TOKENS, shape.hidden, width // TODAY_GPUS)
            found[f"{model}/{layer}/tp{TODAY_GPUS}"] = problem, TODAY_GPUS
    return found


def cases() -> list[Case]:
    """All cases."""
    return [Case(machine, name) for machine in MACHINES for name in sub_layers()]


def scenario(case: Case) -> Scenario:
    """The case with the kernels that the library of the machine chooses, without split-K."""
    preset = load_preset(case.machine, MACHINES[case.machine])
    return Scenario.of_library(preset, *sub_layers()[case.sub_layer])


def figures_of(result: ScenarioResult) -> dict[str, Figures]:
    """The figures of every configuration.

    Raises:
        AssertionError: a ledger disagrees.
    """
    energies = configuration_energies(result.runs, load_energy(DEFAULT))
    figures = {}
    for name, found in result.configurations.items():
        assert found.exactly_once, (name, result.as_dict()["configurations"][name]["ledger"])
        on_cus_ps = sum(result.runs[run].time_ps for run in NEEDS[name] if run in ON_CUS)
        moved = sum(found.dram_bytes.values()), found.link_bytes
        energy_nJ = round(energies[name].as_dict()["uJ"] * 1000)
        figures[name] = Figures(found.time_ps, found.gemm_ps, *moved, on_cus_ps, energy_nJ)
    return figures


def simulate(case: Case, store: Store, only: Sequence[str] = ALL_CONFIGURATIONS) -> dict[str, Figures]:
    """Simulate a case in those configurations of its machine that are in `only`."""
    asked = scenario(case)
    names = [name for name in asked_configurations((ALL,), asked.preset) if name in only]
    return figures_of(simulate_scenario(asked, names, store=store))


def read_figures() -> dict[Case, dict[str, Figures]]:
    """The figures of all cases that have been run, in the order of `cases`."""
    found: dict[Case, dict[str, Figures]] = {}
    if FIGURES.exists():
        for row in read_csv(FIGURES):
            values = Figures(*(int(row[field]) for field in Figures._fields))
            found.setdefault(Case(row["machine"], row["sub_layer"]), {})[row["configuration"]] = values
    return {case: found[case] for case in cases() if case in found}


def write_figures(found: Found) -> None:
    rows = [
        (*case, name, *found[case][name])
        for case in cases()
        if case in found
        for name in ALL_CONFIGURATIONS
        if name in found[case]
    ]
    write_csv(FIGURES, ("machine", "sub_layer", "configuration", *Figures._fields), rows)


def published() -> dict[str, dict[str, float]]:
    """Baseline -> workload -> speed-up of T3 over it."""
    found: dict[str, dict[str, float]] = {}
    for row in read_csv(PUBLISHED):
        ratio = float(row["T3_speedup_over_baseline(derived: ratio of geomeans)"])
        found.setdefault(row["baseline"], {})[row["workload"]] = ratio
    return found


def over(results: Iterable[Mapping[str, Figures]], name: str) -> float | None:
    """Geometric mean of the speed-up of T3 over a configuration; None = the machine does not have it."""
    ratios = [one[name].time_ps / one[T3].time_ps for one in results if name in one]
    return geometric_mean(ratios) if ratios else None


def table(found: Found) -> str:
    """All cases as Markdown, with the explanation of NOTES."""
    blocks: list[Block] = [
        Heading("T3 beside what software can do today", 1),
        Text(
            "Generated by `python -m validation.against.software` from `software.csv`. Figures of one GPU; energy: "
            f"hbm2_12nm. Models of today: {TODAY_TOKENS} tokens."
        ),
        Heading("Speed-up of T3 over the others, geometric mean", 2),
        _means(found),
        Heading("Each figure over that of Sequential, geometric mean", 2),
    ]
    for machine, own in _by_machine(found).items():
        blocks += [Text(_machine_text(machine, own)), _relative(own.values())]
    blocks += [Heading("Beside another simulator", 2), _beside(found), notes(NOTES), Heading("All cases", 1)]
    for case, results in found.items():
        blocks += [Heading(f"{case.sub_layer} on {case.machine}", 2), Table(COLUMNS, rows_of(results))]
    return to_markdown(blocks)


def rows_of(results: Mapping[str, Figures]) -> list[list[str]]:
    """One row per configuration."""
    return [
        [
            *(name, f"{one.time_ps / PS_PER_US:,.1f}", f"{results[SEQUENTIAL].time_ps / one.time_ps:.3f}"),
            *(f"{one.gemm_ps / PS_PER_US:,.1f}", f"{one.dram_bytes / MEGA:,.1f}", f"{one.link_bytes / MEGA:,.1f}"),
            *(f"{one.on_cus_ps / PS_PER_US:,.1f}", f"{one.energy_nJ * MICRO:,.1f}"),
        ]
        for name, one in results.items()
    ]


def _by_machine(found: Found) -> dict[str, Found]:
    own = {machine: {case: one for case, one in found.items() if case.machine == machine} for machine in MACHINES}
    return {machine: results for machine, results in own.items() if results}


def _machine_text(machine: str, own: Found) -> str:
    changes = f" with {', '.join(MACHINES[machine])}" if MACHINES[machine] else ""
    return f"`{machine}`{changes}, {len(own)} sub-layers:"


def _means(found: Found) -> Table:
    machines = _by_machine(found)
    rows = []
    for name in COMPARED:
        means = [over(own.values(), name) for own in machines.values()]
        rows.append([name, *("-" if mean is None else f"{mean:.3f}" for mean in means)])
    return Table(("over", *(f"{machine} ({len(own)} sub-layers)" for machine, own in machines.items())), rows)


def _relative(results: Iterable[Mapping[str, Figures]]) -> Table:
    """Mean over sub-layers of each figure of a configuration over the same figure of Sequential."""
    rows, results = [], list(results)
    for name in results[0]:
        pairs = [(one[name], one[SEQUENTIAL]) for one in results]
        fields = ("time_ps", "dram_bytes", "link_bytes", "energy_nJ")
        cells = [f"{geometric_mean([getattr(a, field) / getattr(b, field) for a, b in pairs]):.3f}" for field in fields]
        rows.append([name, *cells, f"{sum(a.on_cus_ps / a.time_ps for a, _ in pairs) / len(pairs):.0%}"])
    return Table(("configuration", "time", "DRAM", "link", "energy", "of its time CUs only communicate"), rows)


def _beside(found: Found) -> Table:
    machines = [machine for machine, own in _by_machine(found).items() if any(T3_NVLS in one for one in own.values())]
    rows = []
    for baseline, ratios in published().items():
        if baseline != T3:
            like = ALIKE.get(baseline)
            ours = [over(_by_machine(found)[machine].values(), like) if like else None for machine in machines]
            cells = ["not run" if ratio is None else f"{ratio:.3f} ({like})" for ratio in ours]
            rows.append([baseline, ", ".join(f"{name} {ratio}" for name, ratio in ratios.items()), *cells])
    return Table(("speed-up of T3 over", "published (CAIS, HPCA 2026)", *machines), rows)


def asked_cases(names: Sequence[str]) -> list[Case]:
    """The cases of names: of a case, or of all that begin with it.

    Raises:
        UserError: there is no such case.
    """
    chosen = []
    for name in names:
        own = [case for case in cases() if f"{case.name}/".startswith(f"{name}/")]
        if not own:
            raise UserError(f"--run: found {name!r}, allowed is MACHINE or MACHINE/SUB-LAYER: {', '.join(MACHINES)}")
        chosen += own
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description="T3 beside what software can do today.")
    parser.add_argument("--run", action="append", default=[], metavar="MACHINE[/SUB-LAYER]", help="simulate these")
    parser.add_argument("--configuration", action="append", default=[], choices=ALL_CONFIGURATIONS, help="only these")
    asked = parser.parse_args()
    for case in asked_cases(asked.run):
        figures = simulate(case, Store(), asked.configuration or ALL_CONFIGURATIONS)
        found = read_figures()
        write_figures(found | {case: found.get(case, {}) | figures})
        print(case.name, *(f"{name} {one.time_ps / PS_PER_US:.1f} us" for name, one in figures.items()), flush=True)
    write_page(TABLE, table(read_figures()))


if __name__ == "__main__":
    main()
