"""The page: tables and a plot from results, put between two marks of docs/performance.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.plot import Bar, Panel, plot
from bench.results import Results
from bench.system import System

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
PLOT = DOCS / "performance.svg"
START = "<!-- numbers: written by `make bench`, do not edit -->"
END = "<!-- end of numbers -->"
OURS, THEIRS = "roundelay", "celery-chain"


@dataclass(frozen=True)
class Row:
    """One number of all systems: its title, how it is written, whether less is better (None: neither)."""

    name: str
    title: str
    form: str = "{:.1f}"
    less_is_better: bool | None = True


ROWS = (
    Row("gap_p50_ms", "gap per round, idle, p50, ms"),
    Row("gap_p95_ms", "gap per round, idle, p95, ms"),
    Row("first_request_p50_ms", "submit to first model request, idle, p50, ms"),
    Row("commit_ms", "one commit on this disk in the same minutes, p50, ms", less_is_better=None),
    Row("cpu_ms", "worker CPU per model call, ms", "{:.2f}"),
    Row("calls_per_second", "model calls per second, two processes", "{:,.0f}", less_is_better=False),
    Row("calls_per_second_one_process", "model calls per second, one process", "{:,.0f}", less_is_better=False),
    Row(
        "calls_per_second_held_one",
        "the same, held to a quarter of a core: one process",
        "{:,.0f}",
        less_is_better=False,
    ),
    Row(
        "calls_per_second_held_two", "two processes, each held to a quarter of a core", "{:,.0f}", less_is_better=False
    ),
    Row("calls_per_second_flower", "model calls per second, Flower watching", "{:,.0f}", less_is_better=False),
    Row("cpu_ms_flower", "worker CPU per model call, Flower watching, ms", "{:.2f}"),
    Row("crowd_seconds", "1,000 at once, 3 calls of 5 s each, s (ideal 15)"),
    Row("crowd_rss_mb", "memory of the workers in that, RSS, MB", "{:,.0f}"),
    Row("crowd_pss_mb", "memory of the workers in that, PSS, MB", "{:,.0f}"),
    Row("crowd_lost", "lost in that", "{:.0f}"),
    Row("accepted_per_second", "10,000 queued at once: accepted per second", "{:,.0f}", less_is_better=False),
    Row("queue_seconds", "10,000 queued: all answered after, s", "{:,.0f}"),
    Row("queue_lost", "10,000 queued: lost", "{:.0f}"),
    Row("queue_repeated", "10,000 queued: model calls repeated", "{:.0f}"),
    Row("queue_rss_before_mb", "10,000 queued: memory of the workers before, RSS, MB", "{:,.0f}"),
    Row("queue_rss_peak_mb", "10,000 queued: the most in that, RSS, MB", "{:,.0f}"),
    Row("in_order", "10,000 queued: ended in order of start (1: exactly)", "{:.3f}", less_is_better=False),
    Row("held_p50_ms", "10,000 queued: first request to answer, p50, ms", "{:,.0f}"),
    Row("round_1_ms", "gap after round 1, 50 KB tool results, ms"),
    Row("round_25_ms", "gap after round 25, 50 KB tool results, ms"),
    Row("first_text_p50_ms", "200 streams: model's first word to reader's, p50, ms"),
    Row("first_text_p95_ms", "200 streams: model's first word to reader's, p95, ms"),
    Row("direct_p50_ms", "200 streams read straight from the model, p50, ms"),
    Row("wal_bytes", "PostgreSQL log per model call, bytes", "{:,.0f}"),
    Row("redis_bytes", "bytes to and from Redis per model call", "{:,.0f}", less_is_better=None),
    Row("rest_cpu_percent", "CPU of the workers at rest, % of a core"),
    Row("import_ms", "import of the client in a web process, ms", "{:,.0f}"),
)
PANELS = (
    ("gap_p50_ms", "Gap per round, idle, ms (shorter is better)"),
    ("cpu_ms", "Worker CPU per model call, ms (shorter is better)"),
    ("calls_per_second", "Model calls per second on 2 cores (longer is better)"),
    ("crowd_seconds", "1,000 messages at once, 3 calls of 5 s each, s (ideal 15)"),
)


def written(row: Row, value: float | None) -> str:
    """Return a value as the table shows it."""
    return "-" if value is None else row.form.format(value)


def compared(results: Results, row: Row) -> str:
    """Return ours to theirs as a factor of how much better or worse."""
    ours, theirs = results.median(OURS, row.name), results.median(THEIRS, row.name)
    if row.less_is_better is None or not ours or not theirs or row.name == "in_order":
        return ""
    factor = theirs / ours if row.less_is_better else ours / theirs
    return f"{factor:.1f} times better" if factor >= 1 else f"{1 / factor:.1f} times worse"


def table(results: Results, kinds: Sequence[type[System]]) -> list[str]:
    """Return the table of medians, one column a system."""
    versus = {OURS, THEIRS} <= set(results.values)
    head = ["median of the run", *(kind.label for kind in kinds), *(["against Celery by hand"] if versus else [])]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in ROWS:
        values = [results.median(kind.name, row.name) for kind in kinds]
        if any(value is not None for value in values):
            cells = [written(row, value) for value in values]
            lines.append([row.title, *cells, *([compared(results, row)] if versus else [])])
    return [f"| {' | '.join(line)} |" for line in lines]


def conditions(results: Results, kinds: Sequence[type[System]]) -> list[str]:
    """Return what was measured on, and what each system was."""
    facts = results.facts
    machine = f"{facts['cores']} cores of {facts['processor']}, {facts['memory']}, {facts['system']}"
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [
        f"Measured {facts['date']} at {facts['commit']} with `{facts['command']}`, {facts['repetitions']} repetitions.",
        f"Machine: {machine}; load average before the run {facts['load']}.",
        f"Versions: {versions}.",
        "",
        *(f"- **{kind.label}** (`{kind.__module__}`): {kind.note}." for kind in kinds),
    ]
    for name, reasons in results.failures.items():
        lines += [f"- {name} gave no number: {reason}" for reason in reasons]
    return lines


def bars(results: Results, kinds: Sequence[type[System]], row: Row) -> tuple[Bar, ...]:
    """Return a bar for each system that has the number."""
    found = [(kind, results.median(kind.name, row.name)) for kind in kinds]
    return tuple(
        Bar(kind.label, value, written(row, value), kind.name == OURS) for kind, value in found if value is not None
    )


def draw(results: Results, kinds: Sequence[type[System]]) -> str:
    """Return the plot."""
    rows = {row.name: row for row in ROWS}
    panels = [Panel(title, bars(results, kinds, rows[name])) for name, title in PANELS]
    return plot([panel for panel in panels if panel.bars])


def publish(results: Results, kinds: Sequence[type[System]]) -> None:
    """Write table and plot into the page, between its marks."""
    page = PAGE.read_text()
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    numbers = [
        "", f"![Roundelay beside other ways, four measures]({PLOT.name})", "", *table(results, kinds), "",
        *conditions(results, kinds), "",
    ]  # fmt: skip
    PLOT.write_text(draw(results, kinds))
    PAGE.write_text(before + START + "\n".join(numbers) + "\n" + END + after)
