"""The threads that run one GPU: all of a team, or one alone while other programs use the cores."""

from collections.abc import Callable

from sim.host.team import Team, chosen
from sim.machine.team import ABANDONED, ALONE_WINDOWS, HERE, LOOK, LOOK_WINDOWS, NAPS, make_team


class Crew:
    """Runs the engine of one GPU.

    Where nobody has chosen a number of threads, threads that wait for cores leave the GPU to one of them for a while.
    """

    def __init__(self, count: int):
        """count: threads."""
        self._teams = [Team(count), Team(1)]
        self._words = [make_team(count), make_team(1)]
        self._now = 0  # 1: one thread alone
        if count > 1 and not chosen():
            self._words[0][LOOK] = LOOK_WINDOWS

    def run(self, engine: Callable[..., int], until_ps: int) -> int:
        """Call engine(words, number of the thread, until_ps) on each thread. Returns its result."""
        words = self._words[self._now]
        words[ABANDONED] = words[HERE] = 0

        def failed() -> None:
            words[ABANDONED] = 1

        return self._teams[self._now].run(lambda me: engine(words, me, until_ps), failed)

    def change(self, windows: int) -> None:
        """From all threads to one, or back. windows: time windows so far."""
        self._now = 1 - self._now
        words = self._words[self._now]
        words[NAPS], words[LOOK] = 0, windows + (ALONE_WINDOWS if self._now else LOOK_WINDOWS)
