"""Speed of a study with one and two workers: `python -m validation.bench.study [--points N]`.

The points are GEMMs of 1024 x 1024 x 2048 with different start jitter, on a local Dask cluster. The wall time runs from
the call to the finished archive. It contains the start of the cluster and the loading of the machine in every worker.
The table also shows whether the archives are equal to the byte. On a machine with other load the times mean nothing.
The command prints a table and writes no file.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from sim.run.store import Store
from sim.study import load_study, run_study
from tracer.compile.process import machine_text
from traces.command.tables import print_table

STUDY = "kernel = 'gemm:m=1024,n=1024,k=2048'\n[axes]\ndispatch.jitter_ps = {}\n"
POINTS = 96


def measured(points: int) -> list[tuple[object, ...]]:
    """Rows: workers, seconds, points per second, speed-up over one worker, and whether the bytes are equal."""
    rows: list[tuple[object, ...]] = []
    contents: list[bytes] = []
    first_s = 0.0
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "study.toml"
        path.write_text(STUDY.format([*range(points)]))
        study = load_study(path)
        for workers in (1, 2):
            folder = Path(place) / str(workers)
            folder.mkdir()
            began_s = perf_counter()
            run_study(study, folder, workers, store=Store(folder / "store"))
            passed_s = perf_counter() - began_s
            first_s = first_s or passed_s
            contents.append((folder / study.archive_name).read_bytes())
            same = "yes" if contents[-1] == contents[0] else "NO"
            rows.append((workers, passed_s, points / passed_s, first_s / passed_s, same))
    return rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--points", type=int, default=POINTS)
    given = parser.parse_args(arguments)
    columns = ("workers", "seconds", "points/s", "speed-up", "same bytes")
    load = f"load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else "load unknown"
    print_table(f"{given.points} points; {machine_text()}; {load}", columns, measured(given.points))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
