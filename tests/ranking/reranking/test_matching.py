"""Features of pairs against slow expressions in float64."""

import math

import numpy as np
import pytest
import torch

import umpteen
from umpteen.errors import RunError
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.reranking.shortlist import scorer_features, shortlist
from umpteen.ranking.reranking.text_match import NAME_BYTES, TextMatch, name_bytes
from umpteen.ranking.reranking.token_match import TokenMatch

LABELS = ["red apple: a fruit", "green pear", "Red wine, dry", "", "blue plum (small)", "red apple"]
TEXTS = ["a red apple and wine", "pear tree: green", "nothing known here", "Red Apple"]


def rows_of(seed, n_texts=4, n_labels=6, width=4):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(n_labels)[:width] for _ in range(n_texts)])
    rows[0, -1] = -1
    return rows


@pytest.fixture(scope="module")
def match():
    return TextMatch.of(LABELS)


@pytest.mark.parametrize("part", ["words", "chars"])
def test_term_features_are_sums_over_common_terms(match, part):
    rows, first = rows_of(1), 0 if part == "words" else 3
    found = match.features(TEXTS, rows)[:, :, first : first + 3]
    texts = getattr(match, part).transform(TEXTS).toarray().astype(np.float64)
    labels = getattr(match, f"label_{part}").toarray().astype(np.float64)
    for text in range(len(TEXTS)):
        for place, row in enumerate(rows[text]):
            ours, theirs = texts[text], labels[row]
            common = (ours != 0) & (theirs != 0)
            slow = [ours @ theirs, (theirs[common] ** 2).sum(), (ours[common] ** 2).sum()]
            slow = [0.0] * 3 if row < 0 else slow
            np.testing.assert_allclose(found[text, place], slow, atol=1e-6)


def test_names_agree_up_to_a_colon_comma_or_bracket(match):
    rows = np.array([[0, 2, 4, 5]])
    beginning, share, equal = match.features(["Red apple - sweet"], rows)[0, :, 6:9].T
    np.testing.assert_array_equal(equal, [1, 0, 0, 1])
    np.testing.assert_allclose(beginning * NAME_BYTES, [9, 4, 0, 9])
    np.testing.assert_allclose(share, [1, 4 / 9, 0, 1])


def test_a_long_name_is_cut():
    assert name_bytes(["x" * 100]).tobytes() == b"x" * NAME_BYTES


def test_labels_added_later_get_the_features_of_a_fit_with_their_words(match):
    more = ["green apple", "red pear"]
    grown = match.extended(more)
    rows = np.array([[len(LABELS), len(LABELS) + 1]] * len(TEXTS))
    empty = TextMatch(match.words, match.chars, match.label_words[:0], match.label_chars[:0],
                      match.names[:0])  # fmt: skip
    alone = empty.extended(more)
    np.testing.assert_array_equal(
        grown.features(TEXTS, rows), alone.features(TEXTS, rows - len(LABELS))
    )


def test_text_match_is_read_back(match, tmp_path):
    match.save(tmp_path)
    again = TextMatch.load(tmp_path, len(LABELS))
    rows = rows_of(2)
    np.testing.assert_array_equal(again.features(TEXTS, rows), match.features(TEXTS, rows))
    np.save(tmp_path / "names.npy", np.zeros((2, 3)))
    with pytest.raises(RunError, match=r"is damaged.*umpteen rerank"):
        TextMatch.load(tmp_path, len(LABELS))


@pytest.fixture(scope="module")
def tokens(tiny_run):
    model = umpteen.Predictor.load(tiny_run, device="cpu", with_ensemble=False)
    return TokenMatch.of(model.encoder, list(model.labels.titles)), model


def test_late_interaction_equals_a_loop(tokens):
    match, model = tokens
    titles, texts = list(model.labels.titles), ["red apple or blue plum", "green", "apple apple"]
    rows = rows_of(3, len(texts), len(titles), 5)
    found = match.features(texts, rows).double().numpy()
    table = match.table.double().numpy()
    table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-6)
    with_token = np.zeros(len(table))
    encoded = [model.encoder.tokenizer.encode(title).ids[:24] for title in titles]
    for ids in encoded:
        with_token[list(set(ids))] += 1
    idf = np.log((1 + len(titles)) / (1 + with_token))

    def one_way(ours, theirs):
        best = [max(float(table[a] @ table[b]) for b in theirs) for a in ours]
        total = max(sum(idf[a] for a in ours), 1e-9)
        near = sum(idf[a] * v for a, v in zip(ours, best, strict=True)) / total
        same = sum(idf[a] * (v > 0.999) for a, v in zip(ours, best, strict=True)) / total
        return near, same

    for text, sentence in enumerate(texts):
        ids = model.encoder.tokenizer.encode(sentence).ids
        for place, row in enumerate(rows[text]):
            slow = [0.0] * 4
            if row >= 0:
                (a, c), (b, d) = one_way(encoded[row], ids), one_way(ids, encoded[row])
                slow = [a, b, c, d]
            np.testing.assert_allclose(found[text, place], slow, atol=1e-5)


def test_late_interaction_in_small_blocks_is_the_same(tokens, monkeypatch):
    match, model = tokens
    texts = list(model.labels.titles[:7])
    rows = rows_of(4, 7, len(model.labels), 6)
    whole = match.features(texts, rows)
    monkeypatch.setattr("umpteen.ranking.reranking.token_match.TEXTS_AT_ONCE", {"cpu": 1})
    torch.testing.assert_close(match.features(texts, rows), whole)


def candidates(seed=0, n_texts=3, width=6):
    rng = np.random.default_rng(seed)
    rows = np.sort(np.stack([rng.permutation(20)[:width] for _ in range(n_texts)]), axis=1)
    rows[1, 4:] = -1
    scores = {name: torch.from_numpy(rng.random(rows.shape)).float() for name in ("dual", "knn")}
    counts = torch.from_numpy(rng.integers(0, 9, rows.shape))
    return Candidates(torch.from_numpy(rows), scores, counts)


def test_the_shortlist_has_the_best_candidates_in_order():
    found = candidates()
    scores = torch.where(found.valid, found.scores["dual"], -torch.inf)
    chosen = shortlist(found, scores, scores, 5)
    for text in range(3):
        wanted = sorted(
            (i for i in range(6) if found.rows[text, i] >= 0), key=lambda i: -scores[text, i]
        )[:5]
        assert [p for p in chosen.places[text].tolist() if p >= 0] == wanted
    features = scorer_features(found, chosen, ("dual", "knn"))
    assert torch.isfinite(features).all()
    assert (features[~chosen.valid] == 0).all()
    # Ranks by the second retriever, after the features of both and the frequency.
    knn = torch.where(chosen.valid, found.scores["knn"].gather(1, chosen.places.clamp_min(0)), -1)
    ranks = [[math.log1p(int((row > value).sum())) for value in row] for row in knn]
    expected = torch.where(chosen.valid, torch.tensor(ranks), 0.0)
    torch.testing.assert_close(features[:, :, 3 + 4 + 2 + 1], expected)


def test_a_sure_text_has_no_shortlist():
    found = candidates()
    scores = torch.where(found.valid, found.scores["dual"], -torch.inf)
    scores[0, 2] = 50.0
    chosen = shortlist(found, scores, scores, 5, min_share=0.01)
    assert not chosen.valid[0].any()
    assert chosen.valid[1].sum() == 4
