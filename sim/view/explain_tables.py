"""The text and the tables of `t3sim explain`, and the same as plain values."""

from dataclasses import asdict
from typing import Any

from sim.explain.explain import Check, Explanation
from sim.explain.stalls import Stalled
from sim.presets import Preset
from tracer.elf.names import short_name
from traces.command.tables import Quantity, print_table, print_text, share
from traces.units import PS_PER_US, ps_to_ns

SHOWN_SHARES = 5
SHOWN_STALLS = 8


def show_explanation(found: Explanation, preset: Preset) -> None:
    """Print it: bound, how sure, what would help, what waits, assumed values."""
    print_text(f"bounded by {found.bound}\nhow sure: {found.sure}\n")
    busiest = sorted(found.shares.items(), key=lambda item: -item[1])[:SHOWN_SHARES]
    shares = [(unit, share(value)) for unit, value in busiest]
    print_table("Busiest units, in the time of the kernels", ("unit", "share of peak"), shares)
    if found.helps:
        print_text("")
        rows = [_row(check) for check in found.helps]
        print_table(
            "What would help (each was simulated again)", ("change", "time, us", "saves", "speed-up", "values"), rows
        )
    print_text("")
    print_table("What waits, on average at any time", ("what", "number"), found.waiting)
    _show_stalled(found.stalled)
    if found.hangs_on:
        print_text("")
        rows = [(*_row(check), preset.sources[check.change.title].kind) for check in found.hangs_on]
        columns = ("half of", "time, us", "saves", "speed-up", "values", "kind")
        print_table("Assumed values (each was simulated again)", columns, rows)
        print_text(_hangs_text(found))


def _show_stalled(found: list[Stalled]) -> None:
    """The biggest stalls; the kernel is named if there are several."""
    if not found:
        print_text("where warps wait is not known: the run has no samples of them (--interval-ns takes some)")
        return
    several = len({one.kernel for one in found}) > 1
    rows = [
        (*((short_name(one.kernel),) if several else ()), one.place, one.waits_for, one.warps, share(one.share))
        for one in found[:SHOWN_STALLS]
    ]
    print_text("")
    columns = (*(("kernel",) if several else ()), "place", "waits for", "warps", "share")
    print_table("The biggest stalls: warps by what they wait for", columns, rows)


def _row(check: Check) -> tuple[object, ...]:
    values = ", ".join(f"{field} {old:.12g} to {new:.12g}" for field, (old, new) in check.values.items())
    if check.answer is None:
        return (check.change.title, None, None, None, f"cannot run: {check.reason}")
    saves = Quantity(check.saves, f"{check.saves:+.1%}")
    return (check.change.title, check.answer.time_ps / PS_PER_US, saves, check.answer.speedup, values)


def _hangs_text(found: Explanation) -> str:
    names = [check.change.title for check in found.hangs_on if check.matters]
    if not names:
        return "none of these assumed values changes the time by 0.5 % when it is halved"
    return f"the answer hangs on {len(names)} of these {len(found.hangs_on)} assumed values: {', '.join(names)}"


def explanation_dict(found: Explanation) -> dict[str, Any]:
    """Plain values for JSON."""
    return {
        "bounded_by": found.bound,
        "how_sure": found.sure,
        "shares": found.shares,
        "time_ns": ps_to_ns(found.base.time_ps),
        "speedup": found.base.speedup,
        "helps": [_check_dict(check) for check in found.helps],
        "waiting": dict(found.waiting),
        "stalls": [asdict(one) for one in found.stalled],
        "assumed": [_check_dict(check) for check in found.hangs_on],
    }


def _check_dict(check: Check) -> dict[str, Any]:
    return {
        "change": check.change.title,
        "values": {field: list(pair) for field, pair in check.values.items()},
        "time_ns": ps_to_ns(check.answer.time_ps) if check.answer else None,
        "speedup": check.answer.speedup if check.answer else None,
        "saves": check.saves if check.answer else None,
        "reason": check.reason,
    }
