import numpy as np
import pytest
import torch

from umpteen.data.tokens import encode
from umpteen.errors import ConfigError
from umpteen.model.transformer import TransformerEncoder, load_network, load_tokenizer


@pytest.fixture(scope="module")
def texts(tiny_data):
    longer = [" ".join(tiny_data["train"].titles[i : i + 3]) for i in range(5)]
    return [*tiny_data.labels.titles[:9], *tiny_data["train"].titles[:14], *longer, "red"]


def plain(tiny_bert, texts):
    """Hidden states and mask of one padded batch, as Hugging Face does it."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    network = AutoModel.from_pretrained(tiny_bert).eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        hidden = network(batch["input_ids"], attention_mask=batch["attention_mask"])
    return hidden.last_hidden_state, batch["attention_mask"]


def ours(tiny_bert, texts, pooling):
    encoder = TransformerEncoder(load_network(str(tiny_bert)), pooling=pooling).eval()
    tokens = encode(texts, load_tokenizer(str(tiny_bert)), max_tokens=32)
    assert len(set(np.diff(tokens.offsets).tolist())) > 4  # several lengths, so several groups
    with torch.no_grad():
        return encoder(tokens)


def test_mean_pooling_equals_the_padded_forward_of_the_library(tiny_bert, texts):
    hidden, mask = plain(tiny_bert, texts)
    expected = torch.stack([h[m.bool()].mean(dim=0) for h, m in zip(hidden, mask, strict=True)])
    torch.testing.assert_close(ours(tiny_bert, texts, "mean"), expected, rtol=1e-4, atol=1e-5)


def test_first_pooling_equals_the_padded_forward_of_the_library(tiny_bert, texts):
    hidden, _ = plain(tiny_bert, texts)
    torch.testing.assert_close(ours(tiny_bert, texts, "first"), hidden[:, 0], rtol=1e-4, atol=1e-5)


def test_the_padding_id_does_not_matter_behind_the_mask(tiny_bert, texts):
    tokens = encode(texts, load_tokenizer(str(tiny_bert)), max_tokens=32)
    network = load_network(str(tiny_bert)).eval()
    with torch.no_grad():
        first = TransformerEncoder(network, pad_id=0)(tokens)
        other = TransformerEncoder(network, pad_id=4)(tokens)
    torch.testing.assert_close(first, other, rtol=1e-4, atol=1e-5)


def test_an_unknown_pooling_and_an_unknown_place_are_errors(tiny_bert, tmp_path):
    with pytest.raises(ConfigError, match="pooling 'max' is not known. Known: mean, first"):
        TransformerEncoder(load_network(str(tiny_bert)), pooling="max")
    with pytest.raises(ConfigError, match="neither a folder with a Hugging Face model"):
        load_network(str(tmp_path))
    with pytest.raises(ConfigError, match="no fast tokenizer"):
        load_tokenizer(str(tmp_path))
