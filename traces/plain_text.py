"""Show text from inputs as data. Characters that control a terminal or a page are shown as escapes."""


def shown(text: str) -> str:
    r"""A text on one line, with escapes (\n, \x1b, \u202e) for characters that are not printable.

    These are line ends, control characters, escape sequences, marks that change the direction of writing, private and
    unassigned characters, and unpaired surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
