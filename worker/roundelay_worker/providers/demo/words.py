"""The words that the demo provider knows, and what it says, in three languages."""

import re
from typing import Final

NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_N = r"\d+(?:\.\d+)?"

UNITS: Final = {
    word: unit
    for unit, said in {
        "km": "km kilometre kilometres kilometer kilometers quilômetro quilômetros quilómetros kilómetro kilómetros",
        "mi": "mi mile miles milha milhas milla millas",
        "m": "m metre metres meter meters metro metros",
        "ft": "ft foot feet pé pés pie pies",
        "cm": "cm centimetres centimeters centímetros",
        "in": "inch inches polegada polegadas pulgada pulgadas",
        "kg": "kg kilo kilos kilogram kilograms quilo quilos quilogramas kilogramos",
        "lb": "lb lbs pound pounds libra libras",
        "g": "g gram grams grama gramas gramo gramos",
        "oz": "oz ounce ounces onça onças onza onzas",
        "l": "l litre litres liter liters litro litros",
        "gal": "gallon gallons galão galões galón galones",
        "h": "h hour hours hora horas",
        "min": "min minute minutes minuto minutos",
        "s": "s second seconds segundo segundos",
        "C": "c °c celsius",
        "F": "f °f fahrenheit",
    }.items()
    for word in said.split()
}

ZONES: Final = {
    "tokyo": "Asia/Tokyo",
    "tóquio": "Asia/Tokyo",
    "tokio": "Asia/Tokyo",
    "lisbon": "Europe/Lisbon",
    "lisboa": "Europe/Lisbon",
    "london": "Europe/London",
    "londres": "Europe/London",
    "madrid": "Europe/Madrid",
    "madri": "Europe/Madrid",
    "paris": "Europe/Paris",
    "berlin": "Europe/Berlin",
    "berlim": "Europe/Berlin",
    "berlín": "Europe/Berlin",
    "new york": "America/New_York",
    "nova york": "America/New_York",
    "nova iorque": "America/New_York",
    "nueva york": "America/New_York",
    "são paulo": "America/Sao_Paulo",
    "sao paulo": "America/Sao_Paulo",
    "buenos aires": "America/Argentina/Buenos_Aires",
    "mexico city": "America/Mexico_City",
    "ciudad de méxico": "America/Mexico_City",
    "sydney": "Australia/Sydney",
    "utc": "UTC",
}

OPERATORS: Final = {
    "plus": "+",
    "mais": "+",
    "más": "+",
    "minus": "-",
    "menos": "-",
    "times": "*",
    "x": "*",
    "vezes": "*",
    "por": "*",
    "divided by": "/",
    "dividido por": "/",
    "dividido entre": "/",
    "entre": "/",
}
KINDS: Final = {
    "population": "population_millions",
    "população": "population_millions",
    "población": "population_millions",
    "capital": "capital",
    "currency": "currency",
    "moeda": "currency",
    "moneda": "currency",
}
"""What can be asked about a country, and where the tool ``lookup`` has it."""

VERBS: Final = {"div": "/", "multipl": "*", "add": "+", "som": "+", "sum": "+", "subtra": "-", "rest": "-"}


def _any(alternatives: dict[str, str]) -> str:
    return "|".join(map(re.escape, sorted(alternatives, key=len, reverse=True)))


_SIGN = rf"(?:\s*(?:\*\*|[-+*/×÷^])\s*|\s+(?:{_any(OPERATORS)})\s+)"  # noqa: RUF001  # people write it
_TO = r"\s*(?:to|in|into|as|em|para|a|en)\s+"
_UNIT = rf"(?:{_any(UNITS)})(?!\w)"

EXPRESSION: Final = re.compile(rf"\(*\s*{_N}(?:\s*\)*{_SIGN}\(*\s*{_N})+(?:\s*\))*", re.IGNORECASE)
SUM_OF: Final = re.compile(rf"(?:sum of|soma de|suma de)\s+(?P<a>{_N})\s+(?:and|e|y)\s+(?P<b>{_N})", re.IGNORECASE)
PERCENT: Final = re.compile(rf"(?P<a>{_N})\s*%\s*(?:of|de)\s+(?P<b>{_N})", re.IGNORECASE)
AMOUNT: Final = re.compile(rf"(?P<value>{_N})\s*(?P<source>{_UNIT}){_TO}(?P<target>{_UNIT})", re.IGNORECASE)
HOW_MANY: Final = re.compile(
    rf"(?:how many|quant[ao]s|cuánt[ao]s)\s+(?P<target>{_UNIT})\s+(?:is|are|in|são|há em|son|hay en)"
    rf"\s+(?P<value>{_N})\s*(?P<source>{_UNIT})",
    re.IGNORECASE,
)
FACT: Final = re.compile(
    rf"(?P<kind>(?i:{_any(KINDS)}))\s+(?i:of|de|do|da|del)\s+(?:the\s+)?(?P<of>\w+(?:\s[A-ZÁÉÍÓÚ]\w+)*)",
)
DEPENDENT: Final = re.compile(
    rf"(?P<verb>(?:{'|'.join(VERBS)})\w*)(?:\s+(?:it|that|this|isso|ele|eso|the|o|el|result|resultado|number|número))*"
    rf"\s+(?:by|to|por|entre|a|com|con)?\s*(?P<n>{_N})",
    re.IGNORECASE,
)
TIME: Final = re.compile(r"\b(?:time|clock|horas?)\b", re.IGNORECASE)
PLACE: Final = re.compile(rf"\b(?:{_any(ZONES)})\b|\b[A-Z][a-z]+/[A-Z]\w+(?:/\w+)?", re.IGNORECASE)
COUNT: Final = re.compile(r"\b(?:count|conte|conta|contar|cuenta)\b\D*\b(?:to|até|hasta)\s+(?P<to>\d+)", re.IGNORECASE)
GO_ON: Final = re.compile(
    r"\s*(?:yes|sim|sí|si|ok|please|por favor|go on|continue|continua|continúa|segue|sigue|prossiga|adelante|[,.!\s])+",
    re.IGNORECASE,
)
