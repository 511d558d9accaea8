"""Studies: a file names a space of points; their runs are simulated, and the results end in one archive.

study = load_study("study.toml")
outcome = run_study(study, Path("."), workers=2)
results.open(outcome.archive).runs_frame()
"""

from sim.study.driver import Outcome, run_study
from sim.study.study import Study, StudyError, load_study

__all__ = ["Outcome", "Study", "StudyError", "load_study", "run_study"]
