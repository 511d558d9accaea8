"""`t3sim elf`: read GPU binaries."""

from traces.command.verbs import VerbGroup

elf = VerbGroup(
    "elf.", name="elf", help="Read GPU binaries.\n\nExample: t3sim elf info app --preset v100 --threads 256"
)
