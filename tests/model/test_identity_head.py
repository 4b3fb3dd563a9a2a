"""Heads without a projection, cosines of the classifier, and its own dropout."""

import pytest
import torch
from small_runs import fit

from umpteen.config.loading import load_config
from umpteen.errors import ConfigError
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.heads import ClassifierHead, DualHead
from umpteen.model.model import Model
from umpteen.model.storage import load_model
from umpteen.run_folder import RunFolder


def make_model(**options):
    torch.manual_seed(2)
    encoder = BagEncoder(torch.randn(19, 6), dropout=0.0)
    model = Model(encoder, heads=("dual", "classifier"), dim=3, n_labels=11, **options)
    torch.nn.init.normal_(model.label_vectors)
    return model


def test_without_a_projection_vectors_are_the_encoders():
    model = make_model(projection="none").eval()
    encoded = torch.randn(5, 6)
    assert model.dim == 6  # the encoder's, whatever was asked for
    torch.testing.assert_close(model.dual(encoded), encoded / encoded.norm(dim=1, keepdim=True))
    assert torch.equal(model.classifier(encoded), encoded)
    assert not [name for name, _ in model.named_parameters() if "head" in name]
    assert model.label_vectors.shape == (11, 6)


def test_inner_products_without_a_projection():
    head = DualHead(4, 4, dropout=0.0, normalize=False, projection=False)
    encoded = torch.randn(3, 4)
    assert torch.equal(head(encoded), encoded)


def test_the_classifiers_dropout_is_its_own_and_comes_before_the_length():
    head = ClassifierHead(2000, 2000, dropout=0.5, normalize=True, projection=False).train()
    vectors = head(torch.ones(3, 2000))
    assert ((vectors == 0).double().mean() - 0.5).abs() < 0.05
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    model = make_model(dropout=0.25, classifier_dropout=0.5)
    assert (model.dual_head.dropout.p, model.classifier_head.dropout.p) == (0.25, 0.5)


def test_scores_of_a_normalized_classifier_are_cosines():
    model = make_model(projection="none", normalize_classifier=True).eval()
    encoded, rows = torch.randn(4, 6), torch.tensor([0, 3, 10])
    found = model.classifier_scores(model.classifier(encoded), model.label_rows(rows))
    expected = torch.nn.functional.cosine_similarity(
        encoded[:, None], model.label_vectors[rows][None], dim=2
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("cosines", [False, True])
def test_a_run_keeps_its_kind_of_heads(tiny_data, tmp_path, cosines):
    fit(
        tiny_data, tmp_path / "run", "model.projection=none", "train.epochs=1",
        f"model.normalize_classifier={str(cosines).lower()}", "model.classifier_dropout=0.3",
        "model.label_init=random",
    )  # fmt: skip
    model, *_ = load_model(RunFolder(tmp_path / "run").model("last"))
    assert model.projection == "none"
    assert model.dim == model.encoder.dim == 16
    assert model.normalize_classifier is cosines
    assert (model.classifier_dropout, model.dropout) == (0.3, 0.1)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="normalize_classifier must be false unless"):
        load_config("renee", ["model.normalize_classifier=true"])
    with pytest.raises(ConfigError, match="label_init must be text, zeros or random unless"):
        load_config("renee", ["model.projection=none", "model.label_init=odds"])
