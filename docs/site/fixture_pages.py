"""A page for each golden fixture: what lands step by step, and what must come of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from evidence import fixtures
from reference import fenced, table

HOME = Path(__file__).parents[2]
FIXTURES = "reference/fixtures"
LINES = 40  # of a text, at most
ROWS = 12  # of a table, at most
_ABOUT = {"remove.txt", "in_place.txt"}  # of a step: not landed


def fixture_pages() -> dict[str, str]:
    """Every fixture's page by its path below docs/."""
    return {f"{FIXTURES}/{name}.md": fixture_page(HOME / "fixtures" / name) for name in fixtures()}


def fixture_list() -> str:
    """Every golden fixture with its sentence."""
    rows = ((f"[{name}]({name}.md)", fixture.about) for name, fixture in fixtures().items())
    return table(("fixture", "what it shows"), rows)


def fixture_page(folder: Path) -> str:
    """One fixture."""
    parts = [f"# {folder.name}", (folder / "README.md").read_text(encoding="utf-8").strip()]
    if (options := folder / "config.json").exists():
        parts += ["## Options", fenced("json", options.read_text(encoding="utf-8").strip())]
    for stage in [*folder.glob("older_landing_zone"), *folder.glob("landing_zone"), *sorted(folder.glob("then-*"))]:
        parts += _stage(stage)
    parts += ["## What comes of it", *_expected(folder / "expected")]
    return "\n\n".join(parts) + "\n"


def _stage(stage: Path) -> list[str]:
    title = stage.name.partition("-")[2].partition("-")[2].replace("-", " ")
    parts = [f"## {f'Then {title}' if title else 'What lands'}"]
    if removed := _read(stage / "remove.txt").splitlines():
        parts.append("Deleted: " + ", ".join(f"`{printable(path)}`" for path in removed))
    landed = sorted(path for path in stage.rglob("*") if path.is_file())
    for path in landed:
        name = path.relative_to(stage).as_posix()
        if name not in _ABOUT:
            parts += [f"`{printable(name)}`{{ .file }}", _content(path)]
    return parts


def _content(path: Path) -> str:
    """What a file holds: rows, text, or its size."""
    content = path.read_bytes()
    try:
        if content[:4] == b"PAR1":
            return _rows(pq.read_table(path))
        text = content.decode("utf-8")
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError):
        return f"{len(content):,} bytes that cannot be read."
    if not text or not text.replace("\r", "").replace("\n", "").replace("\t", "").isprintable():
        return f"{len(content):,} bytes."
    lines = text.splitlines()
    more = [f"… {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return fenced("json" if path.suffix == ".json" else "text", "\n".join([*lines[:LINES], *more]))


def _rows(rows: pa.Table) -> str:
    headings = [f"{cell(name)}<br>*{cell(rows.schema.field(at).type)}*" for at, name in enumerate(rows.column_names)]
    shown = rows.slice(0, ROWS)
    columns = [[_text(each) for each in column] for column in shown.columns]
    more = f"\n\n… {rows.num_rows - ROWS:,} more rows" if rows.num_rows > ROWS else ""
    return table(headings, list(zip(*columns, strict=True))) + more


def _text(value: pa.Scalar) -> str:
    try:
        return "*NULL*" if not value.is_valid else cell(value.as_py())
    except (ValueError, OverflowError):  # beyond what Python's datetime holds
        return cell(value.cast(pa.int64()).as_py())


def cell(value: Any) -> str:  # noqa: ANN401 - a value of any type
    """A value as text in a table: short, with nothing that Markdown would read."""
    text = printable(value.hex() if isinstance(value, bytes) else str(value))
    text = text if len(text) <= ROWS * 5 else f"{text[: ROWS * 5]}…"
    return f"`{text}`" if text and "`" not in text else "''" if not text else text.replace("`", "\\`")


def printable(text: str) -> str:
    """A text whose control characters and half letters are written out."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _expected(folder: Path) -> list[str]:
    parts = [f"The run ends as `{(folder / 'result').read_text(encoding='utf-8').strip()}`."]
    for path in sorted(folder.glob("tables/*.json")):
        made = json.loads(path.read_text(encoding="utf-8"))
        headings = [
            f"{cell(each['name'])}<br>*{each['type']}{'' if each['nullable'] else ' not null'}*"
            for each in made["columns"]
        ]
        names = [each["name"] for each in made["columns"]]
        rows = [
            ["*NULL*" if row.get(name) is None else cell(row[name]) for name in names] for row in made["rows"][:ROWS]
        ]
        parts += [f"`Tables/{printable(made['table'])}`", table(headings, rows)]
    said = json.loads(text) if (text := _read(folder / "diagnostics.json")) else {}
    for when, heading in {"on_the_way": "On the way", "in_the_end": "In the end"}.items():
        if entries := said.get(when):
            parts += [f"{heading}:", "\n".join(f"- {_diagnostic(entry)}" for entry in entries)]
    if text := _read(folder / "zone.txt"):
        parts += ["Files in the landing zone:", fenced("text", text.strip())]
    return parts


def _diagnostic(entry: dict[str, Any]) -> str:
    place = f"`{printable(entry['path'])}`" if entry["path"] else "the landing zone"
    return f"{entry['code'].replace('|', ' or ')}: {place}" + (f", row {entry['row']}" if "row" in entry else "")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
