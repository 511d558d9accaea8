"""The threads that run one GPU."""

from collections.abc import Callable
from contextlib import suppress

from sim.host.team import Team, threads
from sim.machine.build import Node
from sim.machine.engine import run_dispatchers, run_engine
from sim.machine.shares import run_jobs
from sim.machine.team import ABANDONED, HERE, make_team
from tracer.compile.ahead import Helper
from tracer.compile.process import is_compiled


class Crew:
    """Runs the engine of one GPU on a number of threads."""

    _helped = False
    """Has a crew of this process had a helper that compiles? One is enough."""

    def __init__(self, count: int):
        """count: threads."""
        self._team = Team(count)
        self._words = make_team(count)
        self._helper: Helper | None = None

    def compile_ahead(self, node: Node) -> None:
        """Begin to compile half of the engine in another process, if it is not compiled and there is a second core.

        The second half of a time window and the dispatchers take as long as all that this process compiles meanwhile.
        """
        if threads() > 1 and not Crew._helped and is_compiled(run_engine) is False:
            Crew._helped = True
            with suppress(OSError):  # the system starts no process, or it ended at once: all is compiled here
                self._helper = Helper([(run_dispatchers, (node, 0)), (run_jobs, (node, self._words, 0, 0, 0, 0))])

    def run(self, engine: Callable[..., int], until_ps: int) -> int:
        """Call engine(words, number of the thread, until_ps) on each thread. Returns its result."""
        words = self._words
        words[ABANDONED] = words[HERE] = 0

        def failed() -> None:
            words[ABANDONED] = 1

        try:
            return self._team.run(lambda me: engine(words, me, until_ps), failed)
        finally:
            if self._helper is not None:
                self._helper.stop()
                self._helper = None
