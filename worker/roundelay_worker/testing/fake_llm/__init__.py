"""A scripted model server that refuses what the real services refuse: ``FakeLLM``, ``script``, and the pure checks.

    with FakeLLM() as fake:
        text = "How much? " + script({"calls": [{"name": "add", "arguments": {"a": 1}}]}, {"text": "2"}, name="sum")
        ...                                    # let a client send ``text`` to fake.url
        assert fake.count("sum", 0) == 1 and not fake.refusals

The words of a script stand in ``script.py``, the flags in model names in ``models.py``,
the names of errors in ``errors.py``.
"""

from roundelay_worker.testing.fake_llm.director import CHECKS
from roundelay_worker.testing.fake_llm.fake import FakeLLM
from roundelay_worker.testing.fake_llm.ledger import Disconnected, Recorded, Refused
from roundelay_worker.testing.fake_llm.refusal import Format, Refusal, Rules
from roundelay_worker.testing.fake_llm.script import ScriptUnreadable, script

__all__ = [
    "CHECKS",
    "Disconnected",
    "FakeLLM",
    "Format",
    "Recorded",
    "Refusal",
    "Refused",
    "Rules",
    "ScriptUnreadable",
    "script",
]
