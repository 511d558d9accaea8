"""`t3sim store`: the finished runs that this computer keeps."""

from traces.command.verbs import VerbGroup

store = VerbGroup(
    "store.",
    name="store",
    help="The finished runs that this computer keeps, in the folder T3SIM_STORE.\n\nExample: t3sim store list",
)
