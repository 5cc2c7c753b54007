"""Calls ``ROUNDELAY_SETUP``."""

import importlib


class SetupNotFound(LookupError):
    """``ROUNDELAY_SETUP`` does not name a function; the text says what to mend."""


def call_setup(setup: str) -> None:
    """Call the function that ``module:function`` names; what it raises goes to the caller."""
    module, colon, name = setup.partition(":")
    if not (module and colon and name):
        raise SetupNotFound("ROUNDELAY_SETUP is written module:function")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise SetupNotFound(f"ROUNDELAY_SETUP names {name}, which is not a function of {module}")
    function()
