"""The tests of the docs notice what they are there to notice."""

from __future__ import annotations

import pytest

from .blocks import parse
from .matching import difference
from .running import PageFailure, commands_of, is_run, run_page

TRANSCRIPT = """
<!-- test: any output -->
```console
$ tequio --version
$ tequio show random --kind selector | grep count
```

<!-- test: exit 2, any output -->
```console
$ tequio run no-such-file.toml
```
"""


def test_marks_are_read_and_lines_counted():
    written, run = parse("# Title\n\n<!-- file: a.toml -->\n```toml\nseed = 1\n```\n\n"
                         "<!-- test: output varies, exit 3 -->\n```console\n$ false\n```\n")
    assert (written.file, written.content, written.line, written.language) == ("a.toml", "seed = 1\n", 5, "toml")
    assert (run.varies, run.exit_code, run.slow, run.line) == (True, 3, False, 10)


@pytest.mark.parametrize(("text", "complaint"), [
    ("```\nls\n```", "language"),
    ("```sh\nls\n```", "language"),
    ("  ```python\n  1 / 0\n  ```", "escapes"),
    ("<!-- test: skip -->\n```python\n1 / 0\n```", "reason"),
    ("<!-- test: sometimes -->\n```python\n1 / 0\n```", "no mark"),
    ("```console\nls\n```", "starts with"),
])
def test_nothing_escapes(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(text)


def test_only_what_says_why_is_skipped():
    skipped, free, run = parse("<!-- test: skip, needs a phone -->\n```bash\ncall\n```\n```text\nx\n```\n"
                               "```python\nx = 1\n```\n")
    assert (skipped.skip, is_run(skipped), is_run(free), is_run(run)) == ("needs a phone", False, False, True)


def test_transcripts_are_compared_exactly_unless_they_vary():
    assert difference("accuracy 0.93\n", "accuracy 0.93  \n", varies=False) == ""
    assert difference("accuracy 0.93\n", "accuracy 0.94\n", varies=False)
    assert difference("accuracy 0.93\n", "accuracy   0.94\n", varies=True) == ""
    assert difference("accuracy 0.93\n", "loss 0.94\n", varies=True)


def test_times_and_run_folders_may_vary():
    shown = "folder runs/a-20260101T000000Z-0123abcd  took 1 min 05 s"
    got = "folder runs/a-20270101T000000Z-89ef0123  took 0.42 s"
    assert difference(shown, got, varies=True) == ""


@pytest.mark.parametrize(("got", "same"), [("a\nb\nc\nd", True), ("a\nd", True), ("a\nb", False), ("b\nd", False)])
def test_three_dots_stand_for_any_lines(got, same):
    assert (difference("a\n...\nd", got, varies=False) == "") is same


def test_commands_go_on_after_a_backslash():
    assert commands_of("$ echo a \\\n    b\na b\n$ true\n") == [("echo a \\\n    b", "a b\n"), ("true", "")]


@pytest.mark.parametrize("text", [
    "```console\n$ echo no\nyes\n```\n",
    "```console\n$ false\n```\n",
    "<!-- test: exit 2 -->\n```console\n$ exit 3\n```\n",
    "```bash\nfalse\n```\n",
    "```python\nassert 1 == 2\n```\n",
    "```python\nprint(1)\n```\n\n<!-- test: printed -->\n```text\n2\n```\n",
    "```toml\n[algorthm]\nname = 'fedavg'\n```\n",
    "<!-- file: bad.toml -->\n```toml\nrounds = 0\n```\n",
])
def test_a_block_that_lies_is_caught(text, tmp_path, socket):
    with pytest.raises(PageFailure, match=r"page\.md:"):
        run_page(parse(text), tmp_path, socket)


def test_a_page_is_one_reader_in_one_folder(tmp_path, socket):
    text = ("```python\nvalue = 41\n```\n\n```python\nprint(value + 1, file=open('answer', 'w'))\n```\n\n"
            "```console\n$ cat answer\n42\n```\n\n<!-- file: own.py -->\n```python\nANSWER = 42\n```\n\n"
            "```python\nimport own\nprint(own.ANSWER)\n```\n\n<!-- test: printed -->\n```text\n42\n```\n")
    run_page(parse(text), tmp_path, socket)


def test_a_command_in_a_warm_python_is_like_any_other(tmp_path, socket):
    cold, warm = tmp_path / "cold", tmp_path / "warm"
    cold.mkdir()
    warm.mkdir()
    assert run_page(parse(TRANSCRIPT), cold).outcomes == run_page(parse(TRANSCRIPT), warm, socket).outcomes
