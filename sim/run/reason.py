"""Why something failed, on one line."""

from traces.errors import UserError

REASON_CHARACTERS = 500


def reason_of(error: BaseException) -> str:
    """The text of a UserError, else the type of the error and its text."""
    text = " ".join(str(error).split())
    return (text if isinstance(error, UserError) else f"{type(error).__name__}: {text}")[:REASON_CHARACTERS]
