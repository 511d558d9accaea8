"""Effects of the opcodes of one kernel, as records by opcode number. What is left out is reported once."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tracer.accelsim.instruction import Tables
from tracer.accelsim.opcodes import OPCODE, classify, fill_record
from tracer.accelsim.problems import Problems

classify_once = lru_cache(maxsize=1 << 14)(classify)


class OpcodeBook:
    """Effects of the opcodes read so far, as records by opcode number."""

    def __init__(self, architecture: int, problems: Problems) -> None:
        self._architecture, self._problems = architecture, problems
        self.records = np.zeros(0, OPCODE)

    def extend(self, scan: np.void, tables: Tables, where: Callable[[int], str]) -> None:
        """Classify the opcodes that the scanner has added since the last call. `where` gives file and line as text."""
        count = int(scan["n_opcodes"])
        known = len(self.records)
        if count == known:
            return
        new = np.zeros(count, OPCODE)
        new[:known] = self.records
        for number in range(known, count):
            text = bytes(scan["opcode_text"][scan["opcode_first"][number] : scan["opcode_first"][number + 1]]).decode()
            opcode = classify_once(text)
            fill_record(new[number], opcode, self._architecture)
            if opcode.lacks:
                rows = tables.instructions[: scan["n_instructions"]]
                first = rows["line"][rows["opcode"] == number][:1]
                place = where(int(first[0]) if len(first) else int(scan["line"]))
                self._problems.warn(f"opcode {text.split('.')[0]}", place, opcode.lacks)
        self.records = new
