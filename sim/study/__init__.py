"""Sweeps: a study file names a space of runs; they run on a Dask cluster, and their results end in one archive.

study = load_study("study.toml")
outcome = sweep(study, Path("."), workers=2)
results.open(outcome.archive).runs_frame()
"""

from sim.study.driver import Outcome, sweep
from sim.study.study import Study, StudyError, load_study

__all__ = ["Outcome", "Study", "StudyError", "load_study", "sweep"]
