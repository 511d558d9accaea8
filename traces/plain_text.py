"""Text from inputs is data: what a terminal or a page would obey is shown with escapes."""


def shown(text: str) -> str:
    r"""A text on one line, with escapes (\n, \x1b, \u202e) for whatever is not printed as itself.

    Line ends, control characters, escape sequences, marks that turn the direction of writing, private and unassigned
    characters, halves of pairs.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
