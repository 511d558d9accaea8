"""A program that is ended after so many checkpoints."""

from sim.host.checkpoint import Checkpoint


class PulledPlug(Exception):
    """What ends the program, in these tests."""


class Interrupted(Checkpoint):
    """Ends the program after so many checkpoints."""

    def __init__(self, path, writes, key="key"):
        super().__init__(path, key, 0)
        self.left = writes

    def write(self, content):
        super().write(content)
        self.left -= 1
        if not self.left:
            raise PulledPlug
