"""The table of the papers' claims: three verdicts, what they need, and commands that redraw."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.study.definition import read_study
from umpteen.study.paired import PRESET, Difference, differences
from umpteen.study.results import read_cells, table

ROOT = Path(__file__).resolve().parent.parent
DONE = ROOT / "bench" / "studies" / "done"
VERDICTS = {"holds", "does not hold", "undecided"}
DATA = ("MDN", "WordNet", "Debian", "EURLEX57K")


def tables():
    """Return the rows of the page's tables by their first column's head."""
    text = (ROOT / "docs" / "explanation" / "claims.md").read_text("utf-8")
    found: dict[str, list[list[str]]] = {}
    head = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = ""
        elif not head:
            head = cells[0]
        elif set(cells) != {"---"}:
            found.setdefault(head, []).append(cells)
    return found


def claims():
    return tables()["claim"]


def studies_of(kept):
    return [name.strip() for name in kept.split(",") if name.strip()]


def commands():
    return {name: shlex.split(command.strip("`")) for name, command in tables()["study"]}


def has_clear_difference(names):
    files = [DONE / name / "paired.json" for name in names]
    kept = [each for file in files if file.is_file() for each in json.loads(file.read_text())]
    return any(Difference(**{**each, "by_seed": tuple(each["by_seed"])}).is_clear for each in kept)


def data_with_figures(here):
    """Return the data sets that are followed by figures of two sides."""
    two = r"[^.;]{0,80}?\d+\.\d\d? (?:to|against) \d+\.\d"
    return {name for name in DATA if re.search(rf"\b{name}\b{two}", here)}


def test_every_claim_has_one_of_three_verdicts():
    assert len(claims()) > 30
    assert {row[3] for row in claims()} == VERDICTS
    assert len({row[0] for row in claims()}) == len(claims())


def test_kept_results_are_there_and_a_study_redraws_them():
    for claim, _, here, verdict, kept in claims():
        names = studies_of(kept)
        assert names or (verdict == "undecided" and "not run" in here), claim
        for name in names:
            assert list((DONE / name / "results").glob("*.json"))
            assert (ROOT / "bench" / "studies" / f"{name}.toml").is_file()
            assert name in commands(), name


def test_a_verdict_has_a_clear_difference_or_figures_of_two_data_sets():
    for claim, _, here, verdict, kept in claims():
        if verdict == "undecided":
            continue
        clear = has_clear_difference(studies_of(kept)) and re.search(r"(?<!not )clear", here)
        assert clear or len(data_with_figures(here)) > 1, claim
        three = re.search(r"\b(three|four|five) seeds", here)
        assert three or len(data_with_figures(here)) > 1, claim


def test_nothing_is_called_clear_without_a_clear_difference():
    for claim, _, here, _, kept in claims():
        if re.search(r"(?<!not )\bclear\b", here):
            assert has_clear_difference(studies_of(kept)), claim


@pytest.mark.parametrize("name", sorted(commands()))
def test_a_command_redraws_the_kept_table_and_differences(name):
    program, *words = commands()[name]
    file, folder = f"bench/studies/{name}.toml", DONE / name
    assert [program, *words[:2]] == ["umpteen", "study", file]
    assert {"--draw", str(folder.relative_to(ROOT))} <= set(words)
    absolute = [str(ROOT / word) if "/" in word else word for word in words]
    listed = CliRunner().invoke(main, [*absolute, "--list"])
    assert listed.exit_code == 0, listed.output
    given = [b for a, b in zip(words, words[1:], strict=False) if a == "--path"]
    study = read_study(ROOT / file, dict(each.split("=") for each in given))
    kept = table(study, read_cells(study, folder), heads=_heads(words))
    assert (folder / "table.md").read_text("utf-8") == f"# {study.name}\n\n{kept}"
    against = [b for a, b in zip(words, words[1:], strict=False) if a == "--against"]
    assert bool(against) == (folder / "paired.json").is_file()
    for other in against:
        found = differences(study, folder, other)
        stored = json.loads((folder / "paired.json").read_text())
        stored = [each for each in stored if each["against"] == other.removeprefix(PRESET)]
        assert len(found) == len(stored) > 0


def _heads(words):
    return "all" if "--all-heads" in words else "best"
