"""Results of runs, and their archive.

    from sim import results

    archive = results.open("study.h5")                # written by `t3sim run`, `t3`, `study` or `merge`
    archive.run(3).headline()                         # one run; archive.run() if it is the only one
    archive.runs_frame(), archive.kernels_frame()     # tidy pandas frames: a row per run, per run and kernel,
    archive.instances_frame("hbm")                    # per unit instance,
    archive.intervals_frame()                         # per interval of the time series
    archive.dataset()                                 # xarray

`write_results` writes the archive of one run, `write_runs` that of several.
"""

from sim.results.archive import FILE_TYPE, FORMAT_VERSION, ResultsArchive, open, write_results, write_runs
from sim.run.result import EXTRAPOLATED, Failure, KernelResult, ResultsError, RunResult

__all__ = [
    "EXTRAPOLATED",
    "FILE_TYPE",
    "FORMAT_VERSION",
    "Failure",
    "KernelResult",
    "ResultsArchive",
    "ResultsError",
    "RunResult",
    "open",
    "write_results",
    "write_runs",
]
