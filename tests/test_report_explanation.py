"""The user's own section survives whatever the machine writes around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_files import small_experiment, write_full_run

from rlforge_cli.report import write_report
from rlforge_cli.report.explanation import BEGIN, END, find, put
from rlforge_cli.run_dir import RunDir

WORDS = (
    b"plain\n",
    b"",
    b"no newline at the end\n\n\n",
    b"windows\r\nlines\r\n",
    "中文，emoji 🎉 and \u2028 signs\n".encode(),
    b"## A heading\n\n| a | b |\n|---|---|\n<b>html</b> `code`\n",
    b"\xff\xfe not utf-8 \x00\n",
    BEGIN.encode() + b"\nthe markers themselves\n" + END.encode() + b"\n",
    b"  indented <!-- rlforge:explanation:end --> in a line\n",
)


def make(runs: Path, lang: str = "en") -> bytes:
    markdown, _ = write_report(RunDir.all(runs), runs_dir=runs, out=runs / "report.md", lang=lang)
    return markdown.read_bytes()


@pytest.mark.parametrize("words", WORDS)
def test_it_is_kept_byte_for_byte(tmp_path: Path, words: bytes) -> None:
    write_full_run(tmp_path, "run-01", [1, 0] * 50)
    first = make(tmp_path)
    text = find(first)
    assert text is not None
    (tmp_path / "report.md").write_bytes(first.replace(text, words))
    for lang in ("en", "zh", "en"):
        assert find(make(tmp_path, lang)) == words
    assert not list(tmp_path.glob("*.bak*"))


def test_it_survives_other_results_and_an_editor_that_changes_every_line_end(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    text = find(make(tmp_path))
    assert text is not None
    changed = (tmp_path / "report.md").read_bytes().replace(text, b"mine\n").replace(b"\n", b"\r\n")
    (tmp_path / "report.md").write_bytes(changed)
    write_full_run(tmp_path, "run-05", [1, 0] * 500, config={"optimizer.lr": 3e-6})
    document = make(tmp_path)
    assert find(document) == b"mine\r\n"
    assert b"run-05" in document


def test_it_is_shown_in_the_page_as_text(tmp_path: Path) -> None:
    write_full_run(tmp_path, "run-01", [1, 0] * 50)
    text = find(make(tmp_path))
    assert text is not None
    document = (tmp_path / "report.md").read_bytes().replace(text, b"<script>x</script> & **mine**\n")
    (tmp_path / "report.md").write_bytes(document)
    make(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;x&lt;/script&gt; &amp; **mine**" in page
    assert "<script" not in page


def test_a_first_text_that_nobody_touched_follows_the_language(tmp_path: Path) -> None:
    write_full_run(tmp_path, "run-01", [1, 0] * 50)
    assert b"Yours to write" in (find(make(tmp_path)) or b"")
    assert "由你在此书写".encode() in (find(make(tmp_path, "zh")) or b"")


@pytest.mark.parametrize("lost", [BEGIN, END, BEGIN + "\n", "<!-- rlforge:"])
def test_damaged_markers_keep_the_old_file_and_warn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    write_full_run(tmp_path, "run-01", [1, 0] * 50)
    text = find(make(tmp_path))
    assert text is not None
    broken = (tmp_path / "report.md").read_bytes().replace(text, b"months of thought\n").replace(lost.encode(), b"")
    (tmp_path / "report.md").write_bytes(broken)
    capsys.readouterr()
    assert find(make(tmp_path)) is not None
    assert (tmp_path / "report.md.bak").read_bytes() == broken
    warning = capsys.readouterr().err
    assert "no explanation between its two markers" in warning
    assert "report.md.bak" in warning


def test_a_file_that_was_never_a_report_is_kept_and_no_backup_replaces_another(tmp_path: Path) -> None:
    write_full_run(tmp_path, "run-01", [1, 0] * 50)
    for number, content in enumerate([b"one\n", b"two\n", b"one\n"]):
        (tmp_path / "report.md").write_bytes(content)
        make(tmp_path)
        assert len(list(tmp_path.glob("report.md.bak*"))) == min(number + 1, 2)
    assert (tmp_path / "report.md.bak").read_bytes() == b"one\n"
    assert (tmp_path / "report.md.bak2").read_bytes() == b"two\n"


def test_a_model_cannot_end_or_begin_it(tmp_path: Path) -> None:
    control, arm = [1, 0] * 50, [0, 1] * 50
    hostile = f"{END}\n{BEGIN}\nI am the user\n{END}\n"
    write_full_run(tmp_path, "run-01", control, text=lambda index: hostile, info={"note": END})
    write_full_run(tmp_path, "run-02", arm, text=lambda index: hostile, config={"optimizer.lr": 2e-6})
    text = find(make(tmp_path))
    assert text is not None
    (tmp_path / "report.md").write_bytes((tmp_path / "report.md").read_bytes().replace(text, b"mine\n"))
    document = make(tmp_path)
    assert find(document) == b"mine\n"
    assert document.count(BEGIN.encode()) == document.count(END.encode()) == 1
    assert b"\\x3c!-- rlforge:explanation:end -->" in document


def test_find_and_put_are_inverse() -> None:
    document = f"# a\n\n{BEGIN}\n{END}\n\nb\n"
    assert find(document.encode()) == b""
    for words in WORDS:
        assert find(put(document, words)) == words


@pytest.mark.parametrize("document", [b"", b"x", f"{END}\n{BEGIN}\n".encode(), f"{BEGIN} {END}".encode()])
def test_what_holds_no_section_gives_none(document: bytes) -> None:
    assert find(document) is None
