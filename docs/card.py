"""A drawing of docs/: a card with its own background, so that it reads on light and dark pages."""

WIDTH, MARGIN, LABEL = 980, 22, 150
LETTER = 5.7  # pixels of a letter in the smaller font of cells
INK, SOFT, CARD, EDGE = "#1f2328", "#57606a", "#fcfcfd", "#d0d7de"
FILLS = {
    "code": "#cfe3fb", "code2": "#a9cdf5", "scale": "#fbe3b4", "zero": "#cdebc8", "meta": "#e3d3f7", "pad": "#e9ebee",
    "sign": "#f9cfc9",
}


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Card:
    """A drawing that grows downwards."""

    def __init__(self, title, side):
        self.parts, self.y = [], MARGIN + 14
        self.text(MARGIN, self.y, title, 15, INK, "start", True)
        self.text(WIDTH - MARGIN, self.y, side, 12, SOFT, "end")
        self.y += 16
        self.title = title

    def text(self, x, y, text, size=12, fill=INK, anchor="middle", bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>'
                          f"{escape(text)}</text>")

    def box(self, x, y, width, height, kind):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{FILLS[kind]}" '
                          f'stroke="{SOFT}" stroke-width="0.8"/>')

    def note(self, text):
        self.y += 19
        self.text(MARGIN, self.y, text, 12.5, SOFT, "start")
        self.y += 5

    def row_label(self, label, height):
        lines = label.split("\n")
        for i, line in enumerate(lines):
            self.text(MARGIN, self.y + height / 2 + 4 + 15 * (i - (len(lines) - 1) / 2), line, 12.5, INK, "start", i == 0)

    def strip(self, label, cells, unit="bit", first=None, height=36):
        """cells: (text, size, kind), left to right. unit "bit": numbered downwards to 0 on the right; "byte": upwards from `first`
        (0) on the left; None: not numbered. A size may differ from the numbers' step: (text, size, kind, step)."""
        self.y += 26
        total = sum(cell[1] for cell in cells)
        scale = (WIDTH - 2 * MARGIN - LABEL) / total
        steps = [cell[3] if len(cell) > 3 else cell[1] for cell in cells]
        letters = {size: max(len(line) for cell in cells if cell[1] == size for line in str(cell[0]).split("\n"))
                   for size in {cell[1] for cell in cells}}  # of the longest line in cells of this size: they share a font
        too_long = [cell[0] for cell in cells if letters[cell[1]] * LETTER > cell[1] * scale]
        if too_long:
            raise ValueError(f"{self.title}: expected words that fit into their cells, found {too_long}")
        x, at = MARGIN + LABEL, sum(steps) if unit == "bit" else (first or 0)
        self.row_label(label, height)
        for (text, size, kind, *_), step in zip(cells, steps):
            width = size * scale
            self.box(x, self.y, width, height, kind)
            lines = str(text).split("\n")
            for i, line in enumerate(lines):
                font = 11 if letters[size] * 6.6 > width else 12.5
                self.text(x + width / 2, self.y + height / 2 + 4.5 + 14 * (i - (len(lines) - 1) / 2), line, font)
            if unit == "bit":
                high, low = at - 1, at - step
                if high == low:
                    self.text(x + width / 2, self.y - 5, high, 10, SOFT)
                else:
                    self.text(x + 3, self.y - 5, high, 10, SOFT, "start")
                    self.text(x + width - 3, self.y - 5, low, 10, SOFT, "end")
                at = low
            elif unit == "byte":
                if step is not None:
                    self.text(x + 3, self.y - 5, at, 10, SOFT, "start")
                    at += step
            x += width
        self.y += height

    def grid(self, label, rows, columns, cell, row_name, column_name, height=21):
        """cell(row, column) gives (text, kind); names head rows and columns."""
        self.y += 32
        left = MARGIN + LABEL
        width = (WIDTH - MARGIN - left) / len(columns)
        for j, column in enumerate(columns):
            self.text(left + width * (j + 0.5), self.y - 6, column_name(column), 10, SOFT)
        lines = label.split("\n")
        for i, line in enumerate(lines):
            self.text(MARGIN, self.y + 14 + 16 * i, line, 12.5, INK, "start", i == 0)
        for i, row in enumerate(rows):
            self.text(left - 8, self.y + height / 2 + 4, row_name(row), 10, SOFT, "end")
            for j, column in enumerate(columns):
                text, kind = cell(row, column)
                self.box(left + width * j, self.y, width, height, kind)
                self.text(left + width * (j + 0.5), self.y + height / 2 + 4, text, 10.5 if width > 40 else 9.5)
            self.y += height

    def svg(self):
        height = self.y + MARGIN
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
                f'font-family="ui-sans-serif, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" role="img">\n'
                f"<title>{escape(self.title)}</title>\n"
                f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="10" fill="{CARD}" stroke="{EDGE}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")
