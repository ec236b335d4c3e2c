"""The documentation as a site: built without a warning, whole without a network; its rules and links hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath
from typing import get_args

import pytest
from api import api, described
from browser import browser, tab, until
from evidence import evidence
from links import linked
from reference import CLI, DIAGNOSTICS, commands, help_of, log_events, option_list, reference_pages, states
from rules import sourced, with_ids

import mirror_engine
from mirror_engine.cli import log
from mirror_engine.cli.main import ALL_COMMANDS
from mirror_engine.config import flag_of, options
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.states import TableState
from mirror_engine.testing import onelake, scenarios

HOME = Path(__file__).parents[1]
# Relative links of pages that are read in the repository; fenced blocks show others
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
BLOCK = re.compile(r"^```(?:sh|console|yaml)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(path.relative_to(HOME).as_posix() for path in sorted((HOME / "docs").rglob("*.md"))),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],  # with --quiet nothing is strict
        cwd=HOME,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("INFO")]) == (0, [])
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_of_the_repository(page):
    text = FENCED.sub("", (HOME / page).read_text(encoding="utf-8"))
    assert [link for link in LINK.findall(text) if not (HOME / normpath(f"./{dirname(page)}/{link}")).exists()] == []


def commands_in(text):
    """Command lines that a page shows, without what a command is to run: in blocks, and in code that has an option."""
    lines = [line for block in BLOCK.findall(text) for line in re.sub(r"\\\n", " ", block).splitlines()]
    lines += [span for span in re.findall(r"`(mirror-engine [^`\n]+)`", FENCED.sub("", text)) if " -" in span]
    found = (re.search(r"(?:^|[\s;&|])mirror-engine ((?:[^#\n;&|`<>)]|\([^)]*\))+)", line) for line in lines)
    return [match[1].split(" -- ")[0].strip() for match in found if match]


def unknown_words(line):
    """What of a command line the program does not have: the command, or options of it."""
    words = [word.strip("'\"") for word in line.split()]
    names = [word for word in words if not word.startswith("-")]
    if words[:1] == ["-C"]:
        names = names[1:]
    name = next((name for name in (" ".join(names[:2]), names[0] if names else "") if name in ALL_COMMANDS), "")
    flags = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
    if not name:
        return [] if flags <= {"--completion", "--help", "--version", "-C"} and not names[1:] else [line]
    text = help_of(tuple(name.split()))
    return [f"{line}: {flag}" for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_exist_with_their_options(page):
    text = (HOME / page).read_text(encoding="utf-8")
    assert [fault for line in commands_in(text) for fault in unknown_words(line)] == []


FOREIGN = {"--trusted-microsoft-suffixes", "--add-modules", "--profile"}  # options of other programs, named alone


@cache
def known_options():
    helps = " ".join([help_of(()), *(help_of(tuple(name.split())) for name in ALL_COMMANDS)])
    return FOREIGN | set(re.findall(r"--[a-z][\w-]*", helps))


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])  # names what is gone
def test_options_that_a_page_names_exist(page):
    spans = re.findall(r"`([^`\n]+)`", FENCED.sub("", (HOME / page).read_text(encoding="utf-8")))
    ours = [span for span in spans if span.startswith(("-", "mirror-engine", *ALL_COMMANDS))]
    assert {flag for span in ours for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)} - known_options() == set()


def test_a_command_or_option_that_does_not_exist_is_found():
    block = "$ mirror-engine -C x sync --no-such\nmirror-engine emulator exec S --wait 5s -- a --b\n"
    text = f"```sh\n{block}```\n`mirror-engine go -x`"
    assert [unknown_words(line) for line in commands_in(text)] == [["-C x sync --no-such: --no-such"], [], ["go -x"]]


@pytest.mark.slow
def test_every_command_code_and_option_has_its_place():
    pages = reference_pages()
    assert [name for name in ALL_COMMANDS if f"{CLI}/{name.replace(' ', '-')}.md" not in pages] == []
    assert [code for code in CATALOG if f"# {code}: " not in pages[f"{DIAGNOSTICS}/{code}.md"]] == []
    assert [name for name in options() if flag_of(name) not in option_list()] == []


@pytest.mark.slow
def test_every_state_event_and_public_name_has_its_place():
    assert [state.code for state in get_args(TableState) if f"{{#{state.code}}}" not in states()] == []
    assert [name for _, name in log.KINDS.values() if f"`{name}`" not in log_events()] == []
    public = {*mirror_engine.__all__, *scenarios.__all__, *onelake.__all__}
    public -= {"__version__", "Config"}  # which has a page of its own
    assert [name for name in public if f"{{#{name}}}" not in api()] == []


def test_every_line_that_commands_log_by_themselves_is_listed():
    modules = [path.read_text(encoding="utf-8") for path in (HOME / "mirror_engine/cli").glob("*.py")]
    written = {name for module in modules for name in re.findall(r"""\.write\("\w+", "(\w+)", """, module)}
    assert written >= {"started", "fault_injected"}
    assert [name for name in written if f"|`{name}`|" not in log_events()] == []


def test_a_docstring_of_googles_form_becomes_lists():
    text = "One.\n\nArgs:\n    path: where\n        it is.\n    rows: how many.\n\nRaises:\n    Error: gone."
    assert described(text) == (
        "One.\n\nArgs:\n\n- `path`: where\n  it is.\n- `rows`: how many.\n\nRaises:\n\n- `Error`: gone."
    )


@pytest.mark.slow
def test_pages_do_not_depend_on_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    narrow = [reference_pages(), commands()]
    monkeypatch.setenv("COLUMNS", "200")
    assert narrow == [reference_pages(), commands()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as LZ-4.12 has it", "as [LZ-4.12](../protocol.md#LZ-4.12) has it"),
        ("(ME037)", "([ME037](../reference/diagnostics/ME037.md))"),
        (
            "`tests/test_house.py`, `…::test_no_modules_import_each_other`",
            (
                "[`tests/test_house.py`](../reference/tests/test_house.md), "
                "[*no modules import each other*](../reference/tests/test_house.md#test_no_modules_import_each_other)"
            ),
        ),
        ("`mirror-engine sync`", "[`mirror-engine sync`](../reference/cli/sync.md)"),
        ("`mirror-engine trace row --help`", "[`mirror-engine trace row --help`](../reference/cli/trace-row.md)"),
        ("LZ-99.1, ME999, `ME037`, MEnnn", "LZ-99.1, ME999, `ME037`, MEnnn"),
        ("[ME037](x.md) and <b id='LZ-1.1'>", "[ME037](x.md) and <b id='LZ-1.1'>"),
        ("# ME037\n```\nME037 [a](../../README.md)\n```\n", "# ME037\n```\nME037 [a](../../README.md)\n```\n"),
        ("[a](../../README.md#install), [b](../trace.md)", "[a](../overview.md#install), [b](../trace.md)"),
        (
            "[a](../../tests/golden.py), [b](../../fixtures)",
            "a (`tests/golden.py`), [b](../reference/fixtures/index.md)",
        ),
        ("[a](https://a.example), [b](#c)", "[a](https://a.example), [b](#c)"),
    ],
)
def test_names_of_rules_codes_and_commands_become_links(text, expected):
    assert linked(text, "how-to/slow.md") == expected


def test_links_of_the_readme_lead_to_pages():
    text = "[a](docs/trace.md#a-file), ![b](docs/assets/b.svg), [c](docs/decisions), [d](LICENSE)"
    expected = "[a](trace.md#a-file), ![b](assets/b.svg), [c](decisions/index.md), d (`LICENSE`)"
    assert linked(text, "overview.md", "../README.md") == expected


@pytest.mark.slow
def test_the_site_asks_no_other_place_for_anything(site):
    """Scripts, styles, pictures and frames of every page are its own; links may lead elsewhere."""
    loading = re.compile(
        r'<(?:script|img|iframe|source|link (?![^>]*rel="?canonical))[^>]*(?:src|href)="?(?:https?:)?//[^>]*>'
    )
    pages = sorted(site.rglob("*.html"))
    assert {site / f"{page}.html" for page in SHOWN} <= set(pages)
    assert {found for page in pages for found in loading.findall(page.read_text(encoding="utf-8"))} == set()
    styles = [
        path for path in site.rglob("*.css") if re.search(r"url\((?:https?:)?//", path.read_text(encoding="utf-8"))
    ]
    assert styles == []


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


SHOWN = (
    "index",
    "overview",
    "protocol",
    "reference/diagnostics/ME037",
    "reference/cli/sync",
    "promises",
    "tutorials/first-mirror",
)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_the_site_opens_from_files(site, chromium, width, scheme):
    """In a browser: no error, nothing asked for elsewhere, nothing wider than the window."""
    for page in SHOWN:
        with tab(chromium, (site / f"{page}.html").as_uri(), (width, 900), scheme=scheme) as shown:
            assert shown.complaints == []
            assert {url for url in shown.asked if not url.startswith(("file:", "data:"))} == set()
            assert shown.evaluate("document.documentElement.scrollWidth") <= width, page
            if artefacts := os.environ.get("MIRROR_TEST_ARTIFACTS"):
                name = f"docs-{page.replace('/', '-')}-{width}-{scheme}.png"
                shown.screenshot(path=Path(artefacts) / name, full_page=True)


@pytest.mark.slow
def test_llms_txt_lists_every_rule_and_every_page_of_the_navigation(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# mirror-engine\n\n> ")
    listed = re.findall(r"^- \[[^\n]+?\]\(([^)#\s]+)(#LZ-[\d.]+)?\)", text, re.MULTILINE)
    assert [page for page, _ in listed if not (site / page).is_file()] == []
    assert {rule for _, rule in listed if rule} == {f"#{name}" for name in evidence()}
    assert {f"{page}.html" for page in SHOWN} <= {page for page, _ in listed}
    assert "- [sync](reference/cli/sync.html): Apply all pending change files, then exit." in text


def test_every_claim_of_the_comparison_has_a_source_and_a_date():
    page = (HOME / "docs/explanation/comparison.md").read_text(encoding="utf-8")
    tables = [
        [row.strip("|").split("|") for row in table.splitlines()[2:]]
        for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    ]
    claim = re.compile(r'-|\[[^]]+\]\((https://|\.\./)[^ ]+ "20\d\d-[01]\d(-[0-3]\d)?"\)')
    answers, arrivals = tables
    assert [cell for row in answers for cell in row[1:] if not claim.fullmatch(cell)] == []
    assert [row for row in arrivals if not (row[2] and claim.fullmatch(row[3]))] == []
    assert [row for row in arrivals if row[0].startswith("Fabric") and "](https://" not in row[3]] == []
    assert len(answers) > 1 < len(arrivals)


@pytest.mark.slow
def test_search_works_from_files(site, chromium):
    with tab(chromium, f"{(site / 'index.html').as_uri()}?q=tie+order", (1280, 900)) as shown:
        until(shown, lambda: "ME079" in shown.content())
        assert shown.complaints == []


def test_rule_is_a_sentence_with_its_notes_and_sources_folded():
    page = with_ids("- LZ-1.1 Read it. [documented]\n    - Twice, if [x](y) asks. [decision: safe]\n\n- LZ-1.2 Map:\n")
    shown, below, plain = re.split(r'\n\n    \?\?\? details "[\w ]+"\n\n', page)
    assert shown == '- <a id="LZ-1.1" href="#LZ-1.1"><b>LZ-1.1</b></a> Read it.'
    assert below.splitlines()[:3] == [
        '        - Twice, if [x](y) asks. <span class="mark">decision: safe</span>',
        '        - Source: <span class="mark">documented</span>',
        "        - [Tests and fixtures](reference/rules.md#LZ-1.1)",
    ]
    assert plain.strip() == "- [Tests and fixtures](reference/rules.md#LZ-1.2)"


def test_marks_of_the_protocol_link_their_sources():
    assert sourced("documented BP; observed BC#404, XYZ", {"BP": "https://a.example", "BC#n": "https://b.example"}) == (
        "documented [BP](https://a.example); observed [BC#404](https://b.example/404), XYZ"
    )
    page = with_ids((HOME / "docs/protocol.md").read_text(encoding="utf-8"))
    named = {
        name
        for mark in re.findall(r'<span class="mark">(.*?)</span>', page)
        for name in re.findall(r"[^\[]\b[A-Z]{2,}", mark)
    }
    assert "[BC#404](https://github.com/Bertverbeek4PS/bc2adls/issues/404)" in page
    unlinked = {"PAGE", "BP", "CDF", "TRB", "SPEC", "SDK", "FXD", "UE", "BENCH", "HYGGE", "FCLI"}
    assert not {name[1:] for name in named} & unlinked
