"""``roundelay doctor``: looks at everything a deployment needs, and says what to mend."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Final

from roundelay_worker.cli.checks import (
    broker_findings,
    model_findings,
    redis_findings,
    settings_findings,
    tool_findings,
)
from roundelay_worker.cli.findings import Finding, fault
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.store_checks import store_findings
from roundelay_worker.settings import Settings, SettingsError

_MARKS: Final = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


def run(options: Options, env: Mapping[str, str]) -> int:
    """Check everything; 0 if nothing needs mending, else 1."""
    findings = list(examine(env))
    healthy = all(finding.verdict != "fault" for finding in findings)
    if options.json:
        _write(json.dumps({"healthy": healthy, "findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            _write(_line(finding))
        _write(_verdict(findings))
    return 0 if healthy else 1


def _verdict(findings: list[Finding]) -> str:
    verdicts = {finding.verdict for finding in findings}
    if "fault" in verdicts:
        return "something must be mended"
    return "nothing is broken; see the notes" if "note" in verdicts else "all is well"


def examine(env: Mapping[str, str]) -> Iterator[Finding]:
    """Return what is found, from the settings on; without settings there is nothing to look at."""
    try:
        settings = Settings.from_env(env)
    except SettingsError as exc:
        for sentence in exc.faults:
            yield fault("settings", sentence, "mend the variable")
        return
    yield from settings_findings(settings, env)
    yield from tool_findings(settings)
    yield from redis_findings(settings)
    yield from broker_findings(settings)
    yield from model_findings(settings)
    yield from asyncio.run(store_findings(settings))


def _line(finding: Finding) -> str:
    mend = f"\n      {' ' * len(finding.what)}  -> {finding.mend}" if finding.mend else ""
    return f"{_MARKS[finding.verdict]} {finding.what}: {finding.text}{mend}"


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
