"""The threads that run one GPU."""

from collections.abc import Callable

from sim.host.team import Team
from sim.machine.team import ABANDONED, HERE, make_team


class Crew:
    """Runs the engine of one GPU on a number of threads."""

    def __init__(self, count: int):
        """count: threads."""
        self._team = Team(count)
        self._words = make_team(count)

    def run(self, engine: Callable[..., int], until_ps: int) -> int:
        """Call engine(words, number of the thread, until_ps) on each thread. Returns its result."""
        words = self._words
        words[ABANDONED] = words[HERE] = 0

        def failed() -> None:
            words[ABANDONED] = 1

        return self._team.run(lambda me: engine(words, me, until_ps), failed)
