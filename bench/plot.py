"""Bars as SVG, by hand: no plotting library for four panels of bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABEL, ROW, TITLE, GAP = 760, 190, 22, 30, 18
OURS, OTHERS = "#c2410c", "#94a3b8"
STYLE = "text{font:13px system-ui,sans-serif;fill:#1e293b}.t{font-weight:600}.v{fill:#475569}"


@dataclass(frozen=True)
class Bar:
    """One system's value."""

    label: str
    value: float
    text: str
    ours: bool


@dataclass(frozen=True)
class Panel:
    """One measure."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def height(self) -> int:
        """Pixels that it takes."""
        return TITLE + ROW * len(self.bars) + GAP


def bar_lines(panel: Panel, top: int) -> list[str]:
    """Return the bars of a panel that begins at ``top``."""
    longest = max(bar.value for bar in panel.bars) or 1
    room = WIDTH - LABEL - 90
    lines = []
    for place, bar in enumerate(panel.bars):
        y = top + TITLE + ROW * place
        length = max(1.0, room * bar.value / longest)
        fill = OURS if bar.ours else OTHERS
        lines += [
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LABEL}" y="{y + 3}" width="{length:.1f}" height="{ROW - 6}" rx="2" fill="{fill}"/>',
            f'<text class="v" x="{LABEL + length + 6:.1f}" y="{y + 15}">{escape(bar.text)}</text>',
        ]
    return lines


def plot(panels: Sequence[Panel]) -> str:
    """Return the picture with its panels one below the other."""
    lines = []
    top = 12
    for panel in panels:
        lines.append(f'<text class="t" x="12" y="{top + 18}">{escape(panel.title)}</text>')
        lines += bar_lines(panel, top)
        top += panel.height
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    ground = f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>'
    return "\n".join([frame, f"<style>{STYLE}</style>", ground, *lines, "</svg>", ""])
