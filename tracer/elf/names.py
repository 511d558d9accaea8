"""The readable form of a C++ kernel name."""

from collections.abc import Sequence

SHORT = 36
"""Characters of a name in a table."""
CUT = "..."


def plain_name(name: str) -> str:
    """The qualified name inside an Itanium-mangled one: `_ZN7stencil5scaleIfEEvPT_` -> `stencil::scale`.

    Template arguments and parameters are removed. A name that is not mangled, or that needs a full demangler
    (operators, lambdas, substitutions), is returned unchanged.
    """
    if not name.startswith("_Z"):
        return name
    nested = name.startswith("_ZN")
    at = 3 if nested else 2
    parts = []
    while at < len(name) and name[at].isdecimal():
        end = at
        while end < len(name) and name[end].isdecimal():
            end += 1
        stop = end + int(name[at:end])
        part = name[end:stop]
        parts.append("(anonymous)" if part.startswith("_GLOBAL__N_") else part)
        at = stop
        if not nested or at > len(name):
            break
    complete = parts and all(parts) and at <= len(name) and (not nested or name[at : at + 1] in ("I", "E"))
    return "::".join(parts) if complete else name


def short_name(name: str) -> str:
    """The plain name for a column of a table: at most SHORT characters, cut in the middle. Full names stay in data."""
    plain = plain_name(name)
    if len(plain) <= SHORT:
        return plain
    kept = SHORT - len(CUT)
    return plain[: kept // 2] + CUT + plain[-(kept - kept // 2) :]


def short_names(names: Sequence[str]) -> str:
    """The short name of the first, and how many more there are; "" = there is none."""
    if not names:
        return ""
    return short_name(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
