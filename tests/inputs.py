"""Inputs that failed in other hands, a file each in the folder that ``ROUNDELAY_INPUTS`` names, read in place."""

import os
from pathlib import Path

import pytest


def shared_input(name: str) -> bytes:
    """Return the bytes of one input; skip the test where the folder or the file is not there."""
    folder = os.environ.get("ROUNDELAY_INPUTS", "")
    if not folder:
        pytest.skip("ROUNDELAY_INPUTS is not set")
    path = Path(folder, name)
    if not path.is_file():
        pytest.skip(f"the inputs have no {name}")
    return path.read_bytes()
