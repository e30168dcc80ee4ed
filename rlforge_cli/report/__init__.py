"""The report of an experiment: Markdown and one self-contained HTML file, from run directories alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlforge_cli import output
from rlforge_cli.errors import UserError
from rlforge_cli.report import explanation, html, markdown
from rlforge_cli.report.compose import compose
from rlforge_cli.report.facts import control_first, gather
from rlforge_cli.report.words import LANGUAGES, Words
from rlforge_cli.run_dir import RunDir, write_whole

__all__ = ["LANGUAGES", "control_first", "paths_of", "write_report"]


def paths_of(out: Path) -> tuple[Path, Path]:
    """The Markdown and the HTML file that ``out`` stands for: either of them, a folder, or their common name."""
    if out.is_dir():
        out = out / "report.md"
    if out.suffix.lower() in (".md", ".markdown"):
        return out, out.with_suffix(".html")
    if out.suffix.lower() in (".html", ".htm"):
        return out.with_suffix(".md"), out
    return out.with_name(out.name + ".md"), out.with_name(out.name + ".html")


def write_report(runs: Sequence[RunDir], *, runs_dir: Path, out: Path, lang: str = "en") -> tuple[Path, Path]:
    """Write the report of ``runs``, whose first is the control; returns the paths of Markdown and HTML.

    The section "My explanation" of an earlier report at the same place is kept byte for byte. An earlier file without
    it is copied to ``.bak`` first, with a warning on stderr. Equal input gives equal bytes.

    Raises:
        UserError: no runs, an unknown language, or a place that cannot be written.
    """
    say = Words.load(lang)
    facts = gather(runs, runs_dir=runs_dir)
    for warning in facts.comparison.warnings:
        output.note(f"warning: {warning}")
    document = compose(facts, say)
    markdown_path, html_path = paths_of(out)
    try:
        markdown_path.parent.mkdir(parents=True, exist_ok=True)
        kept, backup = explanation.read_back(markdown_path)
        if backup is not None:
            output.note(f"warning: {markdown_path} has no explanation between its two markers; kept as {backup}")
        text = _placeholder(say) if kept is None or _is_placeholder(kept) else kept
        page = html.render(document, say, explanation=text.decode("utf-8", errors="replace"))
        write_whole(markdown_path, explanation.put(markdown.render(document, say), text))
        write_whole(html_path, page.encode("utf-8"))
    except OSError as error:
        raise UserError(f"report: {error.filename or out}: {error.strerror}; choose another place with --out") from None
    return markdown_path, html_path


def _placeholder(say: Words) -> bytes:
    return say.raw("explanation_placeholder").encode()


def _is_placeholder(text: bytes) -> bool:
    return text in {_placeholder(Words.load(lang)) for lang in LANGUAGES}
