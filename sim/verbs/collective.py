"""`t3sim collective`: time and traffic of one collective, as a library runs it."""

from dataclasses import asdict

import click

from sim.collective.library import ALGORITHMS, LIBRARIES, PROTOCOLS
from sim.host.team import use_threads
from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.collective import Collective, simulate_collective
from sim.verbs.machine_options import with_machine
from sim.verbs.store_options import with_threads
from sim.view.heading import measured_text
from traces.command.meter import Meter
from traces.command.near_choice import NearChoice
from traces.command.output_format import TABLE, table_format, with_format
from traces.command.tables import print_json, print_table, print_text
from traces.units import MIB

ALGORITHM_NAMES = tuple(dict.fromkeys(name for names in ALGORITHMS.values() for name in names))


@click.command()
@click.argument("kind", metavar="KIND", type=NearChoice(tuple(ALGORITHMS)))
@click.option("--gpus", type=int, required=True, help="Number of GPUs.")
@click.option("--bytes", "data_bytes", type=int, required=True, help="Buffer of a GPU in bytes.")
@with_machine("a100_80g")
@click.option("--library", type=NearChoice(LIBRARIES), help="plain = the plans of T3's collectives.  [of the preset]")
@click.option("--algorithm", type=NearChoice(ALGORITHM_NAMES), help="[the library's choice]")
@click.option("--protocol", type=NearChoice(PROTOCOLS), help="[the library's choice]")
@click.option("--channels", type=int, help="Workgroups of the kernel; each keeps a CU.  [the library's choice]")
@click.option("--whole", is_flag=True, help="Simulate all bytes. Else two smaller sizes give the time of a large one.")
@click.option("--fresh", is_flag=True, help="Simulate again, even if the store of finished runs has the result.")
@with_threads
@with_format
def collective(
    kind: str,
    gpus: int,
    data_bytes: int,
    preset: str,
    overrides: tuple[str, ...],
    library: str | None,
    algorithm: str | None,
    protocol: str | None,
    channels: int | None,
    whole: bool,
    fresh: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Simulate one collective on idle GPUs: time, bandwidth, DRAM and link traffic of one GPU.

    KIND is all_reduce, reduce_scatter, all_gather, all_to_all, send_recv or broadcast.

    Example: t3sim collective all_gather --gpus 4 --bytes 65536 --preset a100_80g --json

    Example: t3sim collective all_reduce --gpus 8 --bytes 100000 --protocol simple --channels 4
    """
    asked = Collective(load_preset(preset, overrides), kind, gpus, data_bytes, library, algorithm, protocol, channels)
    with Meter("workgroups") as meter, use_threads(threads):
        result = simulate_collective(asked, Store(), fresh, whole, meter.update)
    found = asdict(result)
    if as_json:
        print_json(found)
        return
    sizes = [("simulated_bytes", size) for size in found.pop("simulated_bytes")]
    print_table(f"{result.collective} on {gpus} GPUs, {preset}", ("figure", "value"), [*found.items(), *sizes])
    if result.padded_bytes != data_bytes:
        click.echo(f"padded from {data_bytes} to {result.padded_bytes} bytes: equal chunks of whole lines or tiles")
    if len(result.simulated_bytes) > 1:
        both = " and ".join(f"{size / MIB:g}" for size in result.simulated_bytes)
        click.echo(f"time and traffic from the line through {both} MiB; --whole simulates all bytes")
    if table_format()[0] == TABLE:
        print_text(f"\n{measured_text(asked.preset)}")
