"""Results of runs and the archive that keeps them.

results = simulate(source, preset)             # Results: one run
write_results("result.h5", results)
open_results("result.h5").headline()           # the one run of an archive
archive = open_runs("study.h5")                # all runs of a sweep or of merged archives
runs_frame(archive), instances_frame(archive, "hbm"), intervals_frame(archive), runs_dataset(archive)
"""

from sim.results.archive import (
    FILE_TYPE,
    FORMAT_VERSION,
    ResultsArchive,
    open_results,
    open_runs,
    write_results,
    write_runs,
)
from sim.results.frames import instances_frame, intervals_frame, kernels_frame, runs_dataset, runs_frame
from sim.results.run import Failure, KernelResult, Results, ResultsError

__all__ = [
    "FILE_TYPE",
    "FORMAT_VERSION",
    "Failure",
    "KernelResult",
    "Results",
    "ResultsArchive",
    "ResultsError",
    "instances_frame",
    "intervals_frame",
    "kernels_frame",
    "open_results",
    "open_runs",
    "runs_dataset",
    "runs_frame",
    "write_results",
    "write_runs",
]
