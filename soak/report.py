"""The report of a run: what it was, what went wrong, what was promised and whether it held."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak.evidence import Evidence
from soak.promises import Verdict
from soak.recovery import recoveries
from soak.statistics import percentile
from soak.tools import IDEMPOTENT, READS, WRITES

PAGE: Final = Path(__file__).parents[1] / "docs" / "soak.md"
START: Final = "<!-- report: written by `make soak SOAK=--page`, do not edit -->"
END: Final = "<!-- end of report -->"
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Run:
    """What was run."""

    command: str
    seed: int
    seconds: float
    workers: int
    machine: str
    versions: str


def broken(verdicts: Sequence[Verdict]) -> bool:
    """Say whether a promise was broken."""
    return any(verdict.faults for verdict in verdicts)


def written(run: Run, evidence: Evidence, verdicts: Sequence[Verdict]) -> str:
    """Return the report as Markdown."""
    parts = (_head(run, verdicts), _promises(verdicts), _blows(evidence), _counts(evidence), _times(evidence))
    return "\n\n".join((*parts, *_faults(run, verdicts)))


def put_into_page(report: str) -> None:
    """Put a report between the marks of the page."""
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n\n{report}\n\n{END}{after}")


def _head(run: Run, verdicts: Sequence[Verdict]) -> str:
    outcome = "**Broken promises: see below.**" if broken(verdicts) else "Every promise held."
    return (
        f"    {run.command}\n\n"
        f"Seed {run.seed}, {run.seconds / 60:.1f} minutes, {run.workers} worker processes, {run.machine}; "
        f"{run.versions}.\n{outcome}"
    )


def _promises(verdicts: Sequence[Verdict]) -> str:
    rows = [f"| {each.promise} | {each.tried:,} | {len(each.faults)} |" for each in verdicts]
    return "\n".join(("| promise | tried by | broken |", "|---|---|---|", *rows))


def _blows(evidence: Evidence) -> str:
    kinds = Counter(blow.kind for blow in evidence.blows)
    owners = sum(len(blow.owned) for blow in evidence.blows)
    rows = [f"| {kind} | {number} |" for kind, number in sorted(kinds.items())]
    told = f"{owners:,} times a message lost the process that was at work on it."
    return "\n".join(("| what went wrong | times |", "|---|---|", *rows, "", told))


def _counts(evidence: Evidence) -> str:
    owed = {each.message_id: each for each in evidence.submitted if not each.lost}
    answers = [json.loads(body) for message_id, body in evidence.kept.items() if message_id in owed]
    statuses = Counter(answer["status"] for answer in answers)
    codes = Counter(answer["error"]["code"] for answer in answers if answer["error"])
    ran = Counter(row["tool"] for row in evidence.ran)
    writes = Counter((row["message"], row["token"]) for row in evidence.ran if row["tool"] in IDEMPOTENT)
    lost = Counter(each.lost for each in evidence.submitted if each.lost)
    rows = (
        ("messages submitted", f"{len(evidence.submitted):,}"),
        ("conversations", f"{len({each.message.conversation for each in evidence.submitted}):,}"),
        ("submits that raised and were repeated", f"{sum(each.refusals for each in evidence.submitted):,}"),
        ("lost with Redis before a worker had them, and submitted again", _listed(lost)),
        ("answers", _listed(statuses)),
        ("error codes", _listed(codes)),
        ("cancellations asked for", f"{sum(each.cancelled for each in evidence.submitted):,}"),
        ("requests to the model", f"{len(evidence.asked):,}"),
        ("requests beyond the first for a turn", f"{_repeated(evidence):,}"),
        ("reads, with repetitions", f"{sum(ran[name] for name in READS):,}"),
        ("writes that must not be repeated", f"{sum(ran[name] for name in WRITES):,}"),
        ("idempotent writes", f"{len(writes):,}, {sum(writes.values()) - len(writes):,} of them again under their key"),
        ("calls listed as uncertain", f"{sum(len(answer['uncertain']) for answer in answers):,}"),
        ("published answers heard", f"{len(evidence.heard):,}"),
        ("messages in the database that no submit told of", f"{len(evidence.strays):,}"),
    )
    return "\n".join(("| what happened | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)))


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counted.most_common()) or "none"


def _repeated(evidence: Evidence) -> int:
    steps = Counter((request["name"], request["step"]) for request in evidence.asked)
    return sum(steps.values()) - len(steps)


def _times(evidence: Evidence) -> str:
    found = recoveries(evidence)
    quiet = [each.seconds for each in found if each.quiet]
    every = [each.seconds for each in found]
    answered = [each.answered - each.returned for each in evidence.submitted if each.answered]
    rows = [
        _percentiles("from the kill of a worker until another one goes on, nothing else going wrong", quiet),
        _percentiles("the same, whatever else went wrong", every),
        _percentiles("from submit to answer", answered),
    ]
    return "\n".join(("| seconds | number | p50 | p95 | longest |", "|---|---|---|---|---|", *rows))


def _percentiles(name: str, values: Sequence[float]) -> str:
    shown = " | ".join(
        f"{value:.1f}" for value in (percentile(values, 50), percentile(values, 95), max(values, default=0))
    )
    return f"| {name} | {len(values):,} | {shown} |"


def _faults(run: Run, verdicts: Sequence[Verdict]) -> list[str]:
    parts = []
    for verdict in verdicts:
        if verdict.faults:
            more = [f"- … and {len(verdict.faults) - SHOWN} more"] if len(verdict.faults) > SHOWN else []
            lines = [f"- {fault}" for fault in verdict.faults[:SHOWN]]
            parts.append("\n".join((f"Broken: {verdict.promise} (again: `--seed {run.seed}`)", "", *lines, *more)))
    return parts
