"""The built-in tool ``lookup``: a small table of countries, for demonstrations."""

import csv
import unicodedata
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import Field

from roundelay_worker.tools.context import ToolError
from roundelay_worker.tools.declare.decorator import tool


@dataclass(frozen=True, slots=True)
class Country:
    """A row of the table."""

    code: str
    name: str
    capital: str
    population_millions: float
    currency: str


@tool(effect="read")
def lookup(
    country: Annotated[str, Field(description="a name in English, Portuguese or Spanish, or a two-letter code")],
) -> Country:
    """Look up a country's capital, population (rounded, in millions) and currency (ISO 4217).

    This is a small demonstration table of some sixty countries, not a source to rely on.
    """
    rows = _rows()
    wanted = _folded(country[:100])
    if wanted in rows:
        return rows[wanted]
    near = sorted({rows[name].name for name in get_close_matches(wanted, rows, n=3, cutoff=0.7)})
    recovery = f"Did you mean {', '.join(near)}?" if near else "Go on without it: the table is small."
    raise ToolError("The table has no such country.", code="not_found", recovery=recovery)


@cache
def _rows() -> dict[str, Country]:
    """Return the rows by each of their names."""
    text = files("roundelay_worker.tools.builtin").joinpath("countries.csv").read_text(encoding="utf-8")
    rows = {}
    for row in csv.DictReader(text.splitlines()):
        population = float(row["population_millions"])
        country = Country(row["code"], row["name"], row["capital"], population, row["currency"])
        rows.update({_folded(row[column]): country for column in ("code", "name", "nome", "nombre")})
    return rows


def _folded(name: str) -> str:
    """Return ``name`` without accents, case and surplus spaces."""
    letters = unicodedata.normalize("NFKD", name)
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).casefold().split())
