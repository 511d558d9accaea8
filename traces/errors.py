"""Errors that a user can cause. The command line prints each on one line and exits with status 2."""


class UserError(Exception):
    """A mistake in the input. The message names the file and line or field, what was found and what is allowed."""
