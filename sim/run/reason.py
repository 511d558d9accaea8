"""The reason of a failure, on one line."""

from traces.errors import REASON_CHARACTERS, UserError


def reason_of(error: BaseException) -> str:
    """The text of a UserError; for other errors the type and the text. At most REASON_CHARACTERS."""
    text = " ".join(str(error).split())
    return (text if isinstance(error, UserError) else f"{type(error).__name__}: {text}")[:REASON_CHARACTERS]
