"""The project speaks the field's words: a list of words from its former private language that may not come back."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".html", ".js", ".css", ".toml"}
# Single words, in prose and as parts of identifiers
WORDS = frozenset(
    """
    told tells telling lies lay lying meets met meeting meetings anew beside likewise whoever somebody nobody owed
    gravest latch latched latches latching unarmed door doors sight sights sighted sighting sightings outlook judge
    judged judges stands played rehearse rehearsal rehearsed anchor anchored moored grave
    """.split()  # noqa: SIM905 - a list of words is read more easily so
)
PHRASES = (
    r"at hand",
    r"of ours",
    r"pass(?:es|ed) over",
    r"sen[dt] home",
    r"lined? up",
    r"the service",
    r"as (?:it|they) (?:lies?|lay)",
    r"(?:is|are|gets?|got) level",
    r"level tables?",
    r"what there is to",
)
# An honest use of a word: (word, file) with the reason
HONEST = {
    ("anchor", "mirror_engine/tables/spark/java.py"): "pathlib's word for a path's root",
    ("met", "mirror_engine/monitoring/wait_conditions.py"): "a condition is met or not",
    ("met", "mirror_engine/onelake/requests.py"): "Azure's code ConditionNotMet",
    ("met", "mirror_engine/onelake/errors.py"): "Azure's code ConditionNotMet",
    ("met", "mirror_engine/onelake/lake.py"): "Azure's code ConditionNotMet",
    ("the service", "mirror_engine/onelake/errors.py"): "Fabric's own message",
}
PLACES = ("mirror_engine", "docs", "README.md")

PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)


def files_of(place):
    root = HOME / place
    paths = [root] if root.is_file() else sorted(root.rglob("*"))
    return [path for path in paths if path.is_file() and path.suffix in SUFFIXES]


def uses_in(place):
    """How often each word occurs, per (word, file)."""
    uses = Counter()
    for path in files_of(place):
        name, text = path.relative_to(HOME).as_posix(), path.read_text(encoding="utf-8")
        words = [word.lower() for word in PARTS.findall(text)]
        uses.update((word, name) for word in words if word in WORDS)
        uses.update((phrase.lower(), name) for phrase in PHRASE.findall(text))
    return Counter({use: count for use, count in uses.items() if use not in HONEST})


@pytest.mark.parametrize("place", PLACES)
def test_the_former_words_do_not_come_back(place):
    assert uses_in(place) == {}


def test_every_honest_use_is_there():
    texts = {name: (HOME / name).read_text(encoding="utf-8").lower() for _, name in HONEST}
    assert [(word, name) for word, name in HONEST if word not in texts[name]] == []
