"""A sequence of kernels and copies in memory, as the trace of one GPU."""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from traces.source import KernelSource, Prefill


class CommandSequence:
    """A `traces.source.TraceSource` of given commands, in order.

    Args:
        text: from which `tracer.kernels.make_kernels` has made them, "" = from something else.
    """

    def __init__(self, commands: Sequence[KernelSource | Prefill], text: str = ""):
        self._commands = tuple(commands)
        self.text = text

    def commands(self) -> Iterator[KernelSource | Prefill]:
        return iter(self._commands)

    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of the commands."""
        digest = sha256()
        for command in self._commands:
            text = repr(command) if isinstance(command, Prefill) else command.fingerprint()
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()
