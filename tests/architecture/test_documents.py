"""What the documents say about the code is true: links, paths and the maps of moves."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from service.domain.statuses import (
    EXPERIMENT_MOVES,
    EXPERIMENT_REVIVALS,
    FINAL_STATUS,
    TRIAL_MOVES,
    TRIAL_REVIVALS,
    ExperimentStatus,
    TrialStatus,
)

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LIFECYCLE = ROOT / "docs/concepts/experiments-and-trials.md"
DECISIONS = sorted(path for path in ROOT.glob("docs/decisions/*.md") if path.name != "README.md")

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)

Moves = set[tuple[str, str]]


def _prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


def _anchors(document: Path) -> Iterator[str]:
    """GitHub's anchors: lower case, without punctuation, spaces as dashes; a repeated heading gets a number."""
    seen: dict[str, int] = {}
    for heading in HEADING.findall(_prose(document)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def _broken_links(document: Path) -> Iterator[str]:
    for link in LINK.findall(CODE.sub("", _prose(document))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
            yield f"{link}: there is no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(document: Path) -> None:
    assert not list(_broken_links(document))


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    sample = tmp_path / "sample.md"
    sample.write_text("# A title\n[gone](gone.md) [nothing](#b-title) [fine](#a-title) `[code](gone.md)`\n")
    assert list(_broken_links(sample)) == ["gone.md: there is no such file", "#b-title: there is no such heading"]


def _documented_moves() -> list[Moves]:
    return [set(ARROW.findall(diagram)) for diagram in DIAGRAM.findall(LIFECYCLE.read_text())]


def _moves(moves: Mapping[StrEnum, frozenset[StrEnum]]) -> Moves:
    return {(source.value, target.value) for source, targets in moves.items() for target in targets}


def test_the_documented_moves_of_experiments_are_those_of_the_code() -> None:
    revivals = {(FINAL_STATUS[reason].value, ExperimentStatus.RUNNING.value) for reason in EXPERIMENT_REVIVALS}
    documented, _ = _documented_moves()
    assert documented == _moves({**EXPERIMENT_MOVES}) | revivals


def test_the_documented_moves_of_trials_are_those_of_the_code() -> None:
    _, documented = _documented_moves()
    assert documented == _moves({**TRIAL_MOVES}) | _moves({**TRIAL_REVIVALS})


def test_every_status_is_in_a_diagram() -> None:
    experiments, trials = ({name for move in moves for name in move} for moves in _documented_moves())
    assert experiments == {status.value for status in ExperimentStatus}
    assert trials == {status.value for status in TrialStatus}


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_names_files_that_obey_it(page: Path) -> None:
    _, _, obeying = page.read_text().partition("## Files that obey it")
    paths = re.findall(r"`([\w./-]+)`", obeying)
    assert paths, "the section `Files that obey it` names no path"
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_there_are_decisions() -> None:
    assert DECISIONS
