"""The report as one HTML file: no script, no network, every foreign character escaped.

A policy in the file itself forbids everything but its one style sheet, which it names by hash, so that even markup
that slipped through could neither run, load, style nor send anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path

from rlforge_cli.report.blocks import (
    Block,
    Bullets,
    Cards,
    Commands,
    Curves,
    Document,
    Example,
    Explanation,
    Fold,
    Forest,
    Heading,
    Paragraph,
    Quote,
    Table,
)  # fmt: skip
from rlforge_cli.report.svg_curves import picture, swatch
from rlforge_cli.report.svg_forest import axis, scale_of, strip
from rlforge_cli.report.text import CODE, END_CODE, END_STRONG, STRONG, Marked, one_line, visible
from rlforge_cli.report.words import Words

TAGS = {CODE: "<code>", END_CODE: "</code>", STRONG: "<strong>", END_STRONG: "</strong>"}
HTML_LANG = {"en": "en", "zh": "zh-Hans"}


def render(document: Document, say: Words, *, explanation: str) -> str:
    """The whole file; ``explanation`` is the user's Markdown, shown as it was typed."""
    style = (Path(__file__).with_name("style.css")).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = escape(one_line(document.title), quote=True)
    body = [_block(block, say, explanation) for block in document.blocks]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="{HTML_LANG[document.lang]}">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="format-detection" content="telephone=no, date=no, address=no, email=no">',
            f"<title>{title}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            f'<header><p class="kicker">{inline(say("kicker"))}</p><h1>{inline(document.title)}</h1>',
            f"{_contents(document, say)}</header>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _contents(document: Document, say: Words) -> str:
    links = [
        f'<a href="#{block.anchor}">{inline(block.text)}</a>'
        for block in document.blocks
        if isinstance(block, Heading) and block.anchor
    ]
    return f'<nav aria-label="{escape(say("contents"), quote=True)}">{"".join(links)}</nav>'


def inline(text: str) -> str:
    """A sentence: everything escaped, then our own marks as tags; a number keeps its unit beside it."""
    plain = escape(text if isinstance(text, Marked) else one_line(text), quote=True)
    plain = re.sub(r"(?<=\d) (?=%|pp\b)|(?<=±) (?=\d)", "\u00a0", plain)
    return re.sub("[" + "".join(TAGS) + "]", lambda match: TAGS[match[0]], plain)


def _block(block: Block, say: Words, explanation: str) -> str:
    match block:
        case Heading():
            anchor = f' id="{block.anchor}"' if block.anchor else ""
            return f"<h{block.level}{anchor}>{inline(block.text)}</h{block.level}>"
        case Paragraph():
            kind = "" if block.kind == "plain" else f' class="{block.kind}"'
            return f"<p{kind}>{inline(block.text)}</p>"
        case Bullets():
            return "<ul>" + "".join(f"<li>{inline(item)}</li>" for item in block.items) + "</ul>"
        case Table():
            return table(block)
        case Commands():
            lines = "\n".join(escape(visible(line), quote=True) for line in block.lines)
            return f'<pre class="commands">{lines}</pre>'
        case Forest():
            return _forest(block)
        case Curves():
            return _curves(block, say)
        case Example():
            return _example(block)
        case Fold():
            inside = "\n".join(_block(inner, say, explanation) for inner in block.blocks)
            state = " open" if block.open else ""
            return f"<details{state}><summary>{inline(block.title)}</summary>\n{inside}\n</details>"
        case Cards():
            groups = ("".join(_block(inner, say, explanation) for inner in group) for group in block.groups)
            return '<div class="cards-grid">' + "".join(f"<section>{group}</section>" for group in groups) + "</div>"
        case Explanation():
            note = f'<p class="small">{inline(say("explanation_note"))}</p>'
            return f'<div class="explanation">{escape(visible(explanation), quote=True)}</div>{note}'


def table(block: Table, *, kind: str = "cards") -> str:
    """A table that becomes one card a row where it is narrow: each cell carries its column's name."""
    heads = [f"<th{_right(block, i)}>{inline(name)}</th>" for i, name in enumerate(block.columns)]
    rows = []
    for row in block.rows:
        cells = []
        for index, cell in enumerate(row):
            classes = [name for name, on in (("right", index in block.right), ("quiet", cell.quiet)) if on]
            marked = f' class="{" ".join(classes)}"' if classes else ""
            word = f' class="verdict v-{cell.verdict}"' if cell.verdict else ""
            name = escape(one_line(block.columns[index]), quote=True)
            cells.append(f'<td{marked} data-label="{name}"><span{word}>{inline(cell.text)}</span></td>')
        rows.append("<tr>" + "".join(cells) + "</tr>")
    caption = f'<p class="small">{inline(block.caption)}</p>' if block.caption else ""
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{caption}"
    )


def _right(block: Table, index: int) -> str:
    return ' class="right"' if index in block.right else ""


def _forest(block: Forest) -> str:
    scale = scale_of(block)
    rows = [
        f'<div class="who"><b>{inline(row.run)}</b> <span>{inline(row.change)}</span></div>{strip(row, block, scale)}'
        f'<div class="numbers"><span>{inline(row.numbers)}</span> '
        f'<b class="verdict v-{row.verdict}">{inline(row.word)}</b></div>'
        for row in block.rows
    ]
    foot = f'<div class="who"></div>{axis(block, scale)}<div class="numbers"></div>'
    label = f'<div class="who"></div><p class="axis-label">{inline(block.axis)}</p><div class="numbers"></div>'
    return (
        f'<figure class="forest"><div class="forest-rows">{"".join(rows)}{foot}{label}</div>'
        f"<figcaption>{inline(block.caption)}</figcaption></figure>"
    )


def _curves(block: Curves, say: Words) -> str:
    keys = "".join(
        f"<li>{swatch(line)}<b>{inline(line.label)}</b> <span>{inline(line.more)}</span></li>" for line in block.legend
    )
    panels = []
    for panel in block.panels:
        note = f' <em class="warn">{inline(panel.note)}</em>' if panel.note else ""
        head = f"<h4>{inline(panel.title)} <code>{inline(panel.key)}</code>{note}</h4>"
        panels.append(f'<section class="panel">{head}{picture(panel)}</section>')
    numbers = f"<details><summary>{inline(block.table_title)}</summary>{table(block.table, kind='plain')}</details>"
    return (
        f'<figure class="curves"><ul class="legend">{keys}</ul><div class="panels">{"".join(panels)}</div>'
        f"<figcaption>{inline(block.caption)}</figcaption></figure>{numbers}"
    )


def _example(block: Example) -> str:
    prompt = _quote(block.prompt) if block.prompt is not None else ""
    answers = "".join(map(_quote, block.answers))
    return f'<article class="flip"><h5>{inline(block.title)}</h5>{prompt}<div class="answers">{answers}</div></article>'


def _quote(quote: Quote) -> str:
    return f'<div class="quote"><p>{inline(quote.label)}</p><pre>{escape(visible(quote.text), quote=True)}</pre></div>'
