"""`t3sim presets`: list the machines, or all values of one with their sources."""

from dataclasses import asdict, fields

import click

from sim.presets import Preset, assumed, borrowed, load_preset, measured
from sim.presets import presets as preset_names
from sim.presets.peaks import Peaks
from sim.verbs.completions import FIELD, PRESET
from sim.view.heading import evidence_text
from traces.command.output_format import TABLE, table_format, with_format
from traces.command.tables import print_json, print_table, print_text
from traces.errors import UserError


@click.command()
@click.argument("name", required=False, shell_complete=PRESET)
@click.option(
    "--set", "overrides", multiple=True, metavar="UNIT.FIELD=VALUE", shell_complete=FIELD, help="Change one value."
)
@click.option("--assumed", "only_assumed", is_flag=True, help="Show only the assumed and borrowed values.")
@with_format
def presets(name: str | None, overrides: tuple[str, ...], only_assumed: bool, as_json: bool) -> None:
    """List the machines, or every value of the preset NAME (or .toml file) with its kind and source.

    Example: t3sim presets t3_2024 --assumed
    """
    if name is None:
        if overrides or only_assumed:
            raise UserError("presets: --set and --assumed need the NAME of a machine, e.g. v100")
        _list([load_preset(known) for known in preset_names()], as_json)
        return
    preset = load_preset(name, overrides)
    described = preset.as_dict()
    if only_assumed:
        described["fields"] = {field: described["fields"][field] for field in assumed(preset) | borrowed(preset)}
    if as_json:
        print_json(described | {"measured": [row._asdict() for row in measured(preset.name)]})
        return
    rows = [(field, leaf["value"], leaf["kind"], leaf["source"]) for field, leaf in described["fields"].items()]
    print_table(f"{preset.name}: {preset.title}", ("field", "value", "kind", "source"), rows)
    print_text(f"{preset.peaks().text()}\n{evidence_text(preset)}")


def _list(all_presets: list[Preset], as_json: bool) -> None:
    if as_json:
        print_json({preset.name: {"title": preset.title, "peaks": preset.peaks().text()} for preset in all_presets})
        return
    if table_format()[0] != TABLE:
        rows = [(each.name, each.title, *asdict(each.peaks()).values(), len(assumed(each))) for each in all_presets]
        columns = ("preset", "title", *(field.name for field in fields(Peaks)), "assumed_values")
        print_table("Machines", columns, rows)
        return
    for preset in all_presets:
        lines = (preset.name, preset.title, preset.peaks().text(), *evidence_text(preset).split("\n"))
        print_text("\n    ".join(lines))
