"""What the demo provider says, in English, Portuguese and Spanish."""

import re
from dataclasses import dataclass
from typing import Final

_MARKS: Final = {
    "pt": r"\b(?:quantos?|quantas?|horas?|são|qual|quais|depois|população|conte|até|você|divida|isso|em|e|do|da|não)\b",
    "es": r"\b(?:cuántos?|cuántas?|hora|cuál|después|luego|población|cuenta|hasta|usted|divide|eso|en|y|del|el|qué)\b",
    "en": r"\b(?:what|how|many|time|the|is|are|and|then|of|in|to|it|count|please|plus|times)\b",
}


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences of one language."""

    beside: str
    facts: dict[str, str]
    failed: str
    missing_tool: str
    found: str
    undone: str
    go_on: str
    nothing_found: str
    lost: str
    millions: str


TEXTS: Final = {
    "en": Texts(
        beside="Let me work that out. ",
        facts={
            "calculator": "{about} = {value}",
            "convert_units": "{about} = {value}",
            "current_time": "in {about} it is {value}",
        },
        failed="{about}: that did not work ({value})",
        missing_tool="{about}: I was not given the tool {tool}",
        found="I stopped because a limit of this answer was reached. So far: {facts}.",
        undone=" Not done yet: {open}.",
        go_on=" Shall I go on?",
        nothing_found="nothing yet",
        lost="I am the demo model: plain rules, no language model. Ask me for sums, unit conversions, the time in a "
        "city, or the population of a country, for example: how many miles are 42 km, and what time is it in Tokyo?",
        millions="{number} million",
    ),
    "pt": Texts(
        beside="Vou calcular isso. ",
        facts={
            "calculator": "{about} = {value}",
            "convert_units": "{about} = {value}",
            "current_time": "em {about} são {value}",
        },
        failed="{about}: não funcionou ({value})",
        missing_tool="{about}: não recebi a ferramenta {tool}",
        found="Parei porque um limite desta resposta foi atingido. Até agora: {facts}.",
        undone=" Falta fazer: {open}.",
        go_on=" Devo continuar?",
        nothing_found="nada ainda",
        lost="Sou o modelo de demonstração: regras simples, nenhum modelo de linguagem. Peça-me contas, conversões de "
        "unidades, a hora numa cidade ou a população de um país, por exemplo: quantas milhas são 42 km?",
        millions="{number} milhões",
    ),
    "es": Texts(
        beside="Voy a calcularlo. ",
        facts={
            "calculator": "{about} = {value}",
            "convert_units": "{about} = {value}",
            "current_time": "en {about} son {value}",
        },
        failed="{about}: no funcionó ({value})",
        missing_tool="{about}: no recibí la herramienta {tool}",
        found="Me detuve porque se alcanzó un límite de esta respuesta. Hasta ahora: {facts}.",
        undone=" Falta por hacer: {open}.",
        go_on=" ¿Quiere que continúe?",
        nothing_found="nada todavía",
        lost="Soy el modelo de demostración: reglas simples, ningún modelo de lenguaje. Pídame cuentas, conversiones "
        "de unidades, la hora en una ciudad o la población de un país, por ejemplo: ¿cuántas millas son 42 km?",
        millions="{number} millones",
    ),
}


def language_of(text: str) -> str:
    """Return ``en``, ``pt`` or ``es``, by the small words in ``text``."""
    counts = {language: len(re.findall(marks, text, re.IGNORECASE)) for language, marks in _MARKS.items()}
    return max(("en", "pt", "es"), key=counts.__getitem__)
