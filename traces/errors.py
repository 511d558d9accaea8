"""The errors that a user can cause. The command line prints them as one line and leaves with status 2."""


class UserError(Exception):
    """A mistake in what the user gave: the message names file and line or field, what was found, what is allowed."""
