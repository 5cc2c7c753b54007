"""The error that ends a command."""


class CommandFailed(Exception):
    """The command cannot do what it was asked for; the text is for the person who typed it."""
