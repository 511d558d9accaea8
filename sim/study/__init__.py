"""Studies: a file defines a set of points. t3sim simulates their runs and writes all results to one archive.

study = load_study("study.toml")
outcome = run_study(study, Path("."), workers=2)
results.open(outcome.archive).runs_frame()
"""

from sim.study.driver import Outcome, run_study
from sim.study.study import Study, StudyError, load_study

__all__ = ["Outcome", "Study", "StudyError", "load_study", "run_study"]
