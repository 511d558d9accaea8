"""Blind predictions: collectives of NCCL on machines and numbers of GPUs without measurements at hand.

`python -m validation.against.collective_predictions` simulates QUESTIONS at SIZES_BYTES and writes
`predictions/collectives_<machine>.csv`. No measurement of these collectives was at hand when they were committed. H200
and B200 have the calibrated values of H100.
"""

import csv
from pathlib import Path
from typing import NamedTuple

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.collective import Collective, simulate_collective

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
COLUMNS = ("collective", "gpus", "bytes", *FIGURES, "kind")


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
    Question("a100_80g", "all_reduce", 8),
    Question("a100_80g", "all_reduce", 16),
)


def predicted(asked: Question, data_bytes: int, store: Store) -> list[str | int | float]:
    """A row of COLUMNS."""
    collective = Collective(load_preset(asked.machine), asked.kind, asked.gpus, data_bytes)
    found = simulate_collective(collective, store).as_dict()
    return [asked.kind, asked.gpus, data_bytes, *(found[name] for name in FIGURES), KIND]


def main() -> None:
    store = Store()
    for machine in dict.fromkeys(asked.machine for asked in QUESTIONS):
        with (FOLDER / f"collectives_{machine}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for asked in QUESTIONS:
                if asked.machine == machine:
                    writer.writerows(predicted(asked, size, store) for size in asked.sizes)


if __name__ == "__main__":
    main()
