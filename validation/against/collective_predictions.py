"""Blind predictions: collectives of NCCL on machines and numbers of GPUs without measurements at hand.

`python -m validation.against.collective_predictions` simulates QUESTIONS at SIZES_BYTES and writes
`predictions/collectives_<machine>.csv`; with `--only MACHINE KIND` all other rows stay. A row names the revision that
made it. No measurement of these collectives was at hand when they were committed. H200 and B200 have the calibrated
values of H100, and no measurement calibrates NVLS.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.collective import Collective, simulate_collective
from validation.csv_file import read_csv, write_csv
from validation.revision import current_revision

FOLDER = Path(__file__).parents[1] / "predictions"
SIZES_BYTES = tuple(1 << power for power in range(12, 31))
"""4 KiB to 1 GiB."""
NODE_GPUS, NODES_LARGEST_BYTES = 8, 4 << 20
"""All GPUs of several nodes are simulated, so only sizes up to this one."""
FIGURES = (
    *("library", "algorithm", "protocol", "channels", "time_ns", "bus_GBps"),
    *("dram_read_bytes", "dram_write_bytes", "link_bytes"),
)
KIND = "blind"
COLUMNS = ("collective", "gpus", "bytes", *FIGURES, "kind", "revision")


class Question(NamedTuple):
    """A collective on one number of GPUs."""

    machine: str
    kind: str
    gpus: int

    @property
    def sizes(self) -> list[int]:
        return [size for size in SIZES_BYTES if self.gpus <= NODE_GPUS or size <= NODES_LARGEST_BYTES]


QUESTIONS = (
    *(Question(machine, "all_to_all", gpus) for machine in ("h200", "b200") for gpus in (2, 4, 8)),
    *(Question(machine, "all_reduce", 8) for machine in ("h200", "b200")),
    Question("a100_80g", "all_reduce", 8),
    Question("a100_80g", "all_reduce", 16),
)


def predicted(asked: Question, data_bytes: int, store: Store) -> list[str]:
    """A row of COLUMNS."""
    collective = Collective(load_preset(asked.machine), asked.kind, asked.gpus, data_bytes)
    found = simulate_collective(collective, store)
    row = (asked.kind, asked.gpus, data_bytes, *(getattr(found, name) for name in FIGURES), KIND, current_revision())
    return [*map(str, row)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Predict collectives.")
    parser.add_argument("--only", nargs=2, metavar=("MACHINE", "KIND"), help="answer only these questions")
    only, store = parser.parse_args(arguments).only, Store()
    chosen = [asked for asked in QUESTIONS if only in (None, [asked.machine, asked.kind])]
    for machine in dict.fromkeys(asked.machine for asked in chosen):
        own = [asked for asked in chosen if asked.machine == machine]
        path, kinds = FOLDER / f"collectives_{machine}.csv", {asked.kind for asked in own}
        rows = [[*row.values()] for row in read_csv(path) if row["collective"] not in kinds]
        rows += [predicted(asked, size, store) for asked in own for size in asked.sizes]
        order = [(asked.kind, str(asked.gpus)) for asked in QUESTIONS if asked.machine == machine]
        rows.sort(key=lambda row: order.index((row[0], row[1])))
        write_csv(path, COLUMNS, rows)


if __name__ == "__main__":
    main()
