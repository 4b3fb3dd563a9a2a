"""The table of the papers' claims: three verdicts, and results that are kept."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERDICTS = {"holds", "does not hold", "undecided"}


def claims():
    text = (ROOT / "docs" / "explanation" / "claims.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_claim_has_one_of_three_verdicts():
    assert len(claims()) > 15
    assert {row[3] for row in claims()} <= VERDICTS


def test_kept_results_are_there_and_a_study_redraws_them():
    for claim, _, here, verdict, kept in claims():
        names = [name.strip() for name in kept.split(",") if name.strip()]
        assert names or (verdict == "undecided" and "not run" in here), claim
        for name in names:
            assert list((ROOT / "bench" / "studies" / "done" / name / "results").glob("*.json"))
            assert (ROOT / "bench" / "studies" / f"{name}.toml").is_file()


def test_a_verdict_for_or_against_names_two_seeds_or_two_data_sets():
    data = ("MDN", "WordNet", "Debian", "EURLEX57K")
    for claim, _, here, verdict, _ in claims():
        if verdict != "undecided":
            seeds = re.search(r"\b(two|three|four|five) seeds", here)
            assert seeds or sum(name in here for name in data) > 1, claim
