"""`t3sim store`: the store of finished runs on this computer."""

from traces.command.verbs import VerbGroup

store = VerbGroup(
    "store.",
    name="store",
    help="The store of finished runs on this computer, in the folder T3SIM_STORE.\n\nExample: t3sim store list",
)
