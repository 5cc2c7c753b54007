"""What a reply that is not whole, or says nothing, is still worth."""

import re
from typing import Final

_ENDS: Final = re.compile(r"[.!?…。\uff01\uff1f](?=[\s\"'»”)\]]|\Z)[\"'»”)\]]*|[。\uff01\uff1f]|\n")
_FENCE: Final = "```"
_ANNOUNCES: Final = re.compile(
    r"""\s*(?:(?:ok(?:ay)?|sure|certainly|claro|certo|klar|gut|bien|d'accord|va\ bene)\W+)?(?:
        i(?:'|\u2019)?(?:ll|\ will|\ am\ going\ to|(?:'|\u2019)m\ going\ to)\b | let\ me\b | now\ i\b
      | (?:agora\ )?(?:eu\ )?vou\b | deixe-me\b
      | (?:ahora\ )?(?:yo\ )?voy\ a\b | d[eé]jame\b
      | ich\ (?:werde|sende|schicke|schaue|suche|pr[uü]fe)\b | lass(?:en\ sie)?\ mich\b
      | je\ vais\b | laissez-moi\b | laisse-moi\b
      | (?:ora\ )?(?:sto\ per|vado\ a|invier[oò]|cercher[oò]|controller[oò])\b | lasciami\b
    )[^.!?\n]*[.!:…]*\s*\Z""",
    re.VERBOSE | re.IGNORECASE,
)


def kept_text(text: str) -> str:
    """Return a reply that was cut, up to its last whole sentence, line or block; '' if none is whole.

    A block of code that was not closed is left out.
    """
    if text.count(_FENCE) % 2:
        text = text[: text.rfind(_FENCE)]
    end = max((match.end() for match in _ENDS.finditer(text)), default=0)
    return text[:end].rstrip()


def only_announces(text: str) -> bool:
    """Say whether a text is one sentence about what will be done next: after the end, it will not be."""
    return bool(_ANNOUNCES.match(text))
