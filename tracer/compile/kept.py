"""What numba works out again and again while it compiles, made cheaper. The code that it makes is the same.

Together these took a seventh of the time of compilation. Imported once, by `tracer.compile.jit`.
"""

from numba.core import ir, types

_texts: dict[int, tuple[types.Record, str]] = {}


def _record_text(record, text=types.Record.__repr__):
    """Text of a record type. numba makes it whenever it compares a type that holds the record, 40,000 times."""
    found = _texts.get(id(record))
    if found is None:
        found = _texts[id(record)] = record, text(record)  # the record is kept too, so that its id stays its own
    return found[1]


def _variables(self, value):
    """Variables in a part of an instruction. numba asks four classes, slowly, for each line number and name."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if kind in _WITHOUT:
        return []
    if kind is list or kind is tuple:
        return [variable for each in value for variable in _variables(self, each)]
    if kind is dict:
        return [variable for each in value.values() for variable in _variables(self, each)]
    return value.list_vars() if isinstance(value, ir.Inst) else []


_WITHOUT = frozenset({ir.Loc, str, int, bool, float, type(None)})
"""Types of values that hold no variables."""

types.Record.__repr__ = _record_text  # type: ignore[method-assign]
ir.Inst._rec_list_vars = _variables  # type: ignore[method-assign]
