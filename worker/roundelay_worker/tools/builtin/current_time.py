"""The built-in tool ``current_time``."""

from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import Field

from roundelay_worker.tools.context import ToolError
from roundelay_worker.tools.declare.decorator import tool

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A moment as the people of a zone write it."""

    zone: str
    time: str
    weekday: str
    utc_offset: str


@tool(effect="read")
def current_time(
    zone: Annotated[str, Field(description="an IANA name, for example Europe/Lisbon or UTC", max_length=64)] = "UTC",
) -> LocalTime:
    """Tell the date, time and weekday now in a time zone."""
    return local_time(datetime.now(UTC), zone)


def local_time(moment: datetime, zone: str) -> LocalTime:
    """Return the aware ``moment`` as it is in ``zone``; raise ToolError with near names for an unknown zone."""
    local = moment.astimezone(_zone(zone))
    return LocalTime(zone, local.isoformat(timespec="seconds"), _WEEKDAYS[local.weekday()], local.isoformat()[-6:])


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:  # a folder of zones is an OSError
        near = get_close_matches(name, available_timezones(), n=3, cutoff=0.5)
        recovery = f"Did you mean {', '.join(sorted(near))}?" if near else "Use a name such as America/Sao_Paulo."
        raise ToolError("This is not the name of a time zone.", code="unknown_zone", recovery=recovery) from exc
