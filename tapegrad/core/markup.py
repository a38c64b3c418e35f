"""HTML for notebooks: one look for everything that is shown as a table, in light and in dark themes.

Themes are not asked for: text has the colour of what is around it, lines and dim text are made from that colour, and `COLOURS`
are mid-tones that can be read on white and on black. So the same text is right in JupyterLab, VS Code, exported pages and
wherever a browser prefers dark. Styles stand in the elements, since notebooks that are not trusted lose style sheets.

A cell is text, which is escaped, or an `Html` that is finished.
"""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = {
    "blue": "#2f7fd1",
    "green": "#2e9e5b",
    "red": "#d64545",
    "orange": "#c77700",
    "violet": "#8a63d2",
}
"""Mid-tones: at least 3 to 1 against white, and 4 to 1 against black."""

_FONT = "font-family:ui-monospace,monospace;font-size:.9em;font-variant-numeric:tabular-nums"
_CELL = (
    "padding:.15em 1.2em .15em 0;text-align:left;vertical-align:top;border:0;"
    "background:transparent;color:inherit;max-width:none"
)
_HEAD = f"{_CELL};border-bottom:1px solid currentColor;opacity:.7"


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


class Lines(str):
    """Text of several lines, which a console and a notebook show as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def escaped(text: str) -> Html:
    """The text as HTML; what is HTML stays as it is."""
    import html  # a program that shows nothing in a notebook does not wait for its tables

    return text if isinstance(text, Html) else Html(html.escape(text))


def coloured(text: str, colour: str, bold: bool = False) -> Html:
    """The text in one of `COLOURS`."""
    weight = ";font-weight:600" if bold else ""
    return Html(f'<span style="color:{COLOURS[colour]}{weight}">{escaped(text)}</span>')


def dim(text: str) -> Html:
    """The text, less prominent."""
    return Html(f'<span style="opacity:.65">{escaped(text)}</span>') if text else Html()


def aligned(rows: Sequence[Sequence[str]], named: int) -> list[str]:
    """Rows of text in columns: the first `named` ones begin at the left, figures end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k < named else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(
    rows: Sequence[Sequence[str]], head: Sequence[str] = (), caption: str = "", named: bool = False
) -> Html:
    """A table; `named`: the first cell of a row is its name. A row of one cell goes across."""
    width = max((len(row) for row in (head, *rows)), default=1)
    shown = []
    for row in rows:
        across = f' colspan="{width}"' if len(row) == 1 < width else ""
        cells = [
            f'<td style="{_CELL}{";opacity:.7" if named and not k else ""}"{across}>{escaped(cell)}</td>'
            for k, cell in enumerate(row)
        ]
        shown.append(f'<tr style="background:transparent">{"".join(cells)}</tr>')
    title = f'<caption style="text-align:left;caption-side:top;color:inherit;padding:0 0 .3em">{escaped(caption)}</caption>'
    first = "".join(f'<th style="{_HEAD}">{escaped(cell)}</th>' for cell in head)
    return Html(
        f'<table style="border-collapse:collapse;border:0;margin:.5em 0;color:inherit;{_FONT}">'
        f"{title if caption else ''}"
        + (f'<thead><tr style="background:transparent">{first}</tr></thead>' if head else "")
        + f"<tbody>{''.join(shown)}</tbody></table>"
    )


def panel(colour: str, badge: str, headline: str, parts: Sequence[str], foot: Sequence[str]) -> Html:  # fmt: skip
    """A verdict: a coloured badge with a headline, what belongs to it, and small print."""
    tone = COLOURS[colour]
    mark = (
        f'<span style="background:{tone};color:#fff;border-radius:.3em;padding:.1em .6em;font-weight:600;'
        f'margin-right:.6em">{escaped(badge)}</span>'
    )
    told = [
        part if isinstance(part, Html) else f'<p style="margin:.4em 0">{escaped(part)}</p>'
        for part in parts
        if part
    ]
    small = "<br>".join(escaped(line) for line in foot if line)
    return Html(
        f'<div style="border-left:3px solid {tone};padding:.3em 0 .3em 1em;overflow-x:auto;color:inherit">'
        f"<div>{mark}{escaped(headline)}</div>{''.join(told)}"
        f'<div style="opacity:.7;font-size:.85em">{small}</div></div>'
    )


def block(text: str, caption: str) -> Html:
    """Text in lines, as it would be printed, under a caption."""
    style = "margin:.2em 0;padding:0;font:inherit;line-height:1.3;border:0;background:transparent;color:inherit"
    return Html(
        f'<div style="color:inherit;overflow-x:auto;{_FONT}"><div style="opacity:.7">{escaped(caption)}</div>'
        f'<pre style="{style}">{escaped(text)}</pre></div>'
    )


__all__ = ["COLOURS", "Html", "Lines", "block", "coloured", "dim", "escaped", "panel", "table"]
