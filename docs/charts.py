"""Charts with two logarithmic axes, as SVG: tools/races draws with this."""
import math
import textwrap

from card import CARD, EDGE, INK, SOFT, WIDTH, escape

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b", "#17becf", "#bcbd22")
LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 84, 800, 64, 470, 530
LETTER = 6.3  # pixels of a letter of the notes, in wide fonts


def ticks(low, high):
    """1, 2 and 5 of every decade from low to high; 1 and 3 where that would be more than nine."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for step in steps]
        found = [each for each in found if low <= each * (1 + 1e-9) and each <= high * (1 + 1e-9)]
        if len(found) <= 9:
            break
    return found


class Chart:
    """x, y: (label, low, high, ticks), all above 0. Points outside are moved to the edge."""

    def __init__(self, title, x, y, alt=""):
        self.title, self.x, self.y, self.alt, self.out, self.entries = title, x, y, alt or title, [], 0
        self.text(LEFT, 34, title, 15, anchor="start")
        for tick in x[3]:
            self.out.append(f'<path d="M{self.at_x(tick):.1f} {TOP}V{BOTTOM}" stroke="{EDGE}"/>')
            self.text(self.at_x(tick), BOTTOM + 18, f"{tick:g}", fill=SOFT)
        for tick in y[3]:
            self.out.append(f'<path d="M{LEFT} {self.at_y(tick):.1f}H{RIGHT}" stroke="{EDGE}"/>')
            self.text(LEFT - 8, self.at_y(tick) + 4, f"{tick:g}", fill=SOFT, anchor="end")
        self.text((LEFT + RIGHT) / 2, BOTTOM + 38, x[0], 12.5)
        self.text(LEFT - 8, TOP - 10, y[0], fill=SOFT, anchor="end")

    @staticmethod
    def _part(axis, value):
        low, high = math.log(axis[1]), math.log(axis[2])
        return min(1.0, max(0.0, (math.log(value) - low) / (high - low)))

    def at_x(self, value):
        return LEFT + (RIGHT - LEFT) * self._part(self.x, value)

    def at_y(self, value):
        return BOTTOM - (BOTTOM - TOP) * self._part(self.y, value)

    def text(self, px, py, words, size=12, fill=INK, anchor="middle"):
        self.out.append(f'<text x="{px:.1f}" y="{py:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, points, color, dashes=""):
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>')

    def circle(self, px, py, color, filled=True, words=""):
        title = f"<title>{escape(words)}</title>" if words else ""
        self.out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4.5" fill="{color if filled else CARD}" stroke="{color}" stroke-width="2"' +
                        (f">{title}</circle>" if title else "/>"))

    def mark(self, x, y, color, filled=True, words=""):
        self.circle(self.at_x(x), self.at_y(y), color, filled, words)

    def _entry(self, words):
        y = TOP + 20 + 24 * self.entries
        self.text(RIGHT + 44, y, words, 13, anchor="start")
        self.entries += 1
        return y - 4

    def legend_mark(self, words, color):
        """An entry for points without a line."""
        self.circle(RIGHT + 25, self._entry(words), color)

    def notes(self, *notes):
        """Under the legend, in lines that fit beside the drawing."""
        lines = [line for words in notes for line in textwrap.wrap(words, int((WIDTH - RIGHT - 14) / LETTER))]
        for i, words in enumerate(lines):
            self.text(RIGHT + 14, TOP + 30 + 24 * self.entries + 18 * i, words, 11, SOFT, "start")

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
                f'font-family="ui-sans-serif, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" role="img">\n'
                f"<title>{escape(self.alt)}</title>\n"
                f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" fill="{CARD}" stroke="{EDGE}"/>\n' +
                "\n".join(self.out) + "\n</svg>\n")
