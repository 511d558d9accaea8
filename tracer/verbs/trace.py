"""`t3sim trace`: make, check and convert trace archives."""

from traces.command.verbs import VerbGroup

trace = VerbGroup(
    "trace.", name="trace", help="Make, check and convert trace archives.\n\nExample: t3sim trace info gemm.h5"
)
