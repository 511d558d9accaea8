"""`t3sim trace`: make and look at trace archives."""

from traces.command.verbs import VerbGroup

trace = VerbGroup("trace.", name="trace", help="Make and look at trace archives.\n\nExample: t3sim trace info gemm.h5")
