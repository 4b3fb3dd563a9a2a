import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from umpteen.data.tokens import encode
from umpteen.errors import ConfigError
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.transformer import TransformerEncoder


class Asked(TorchDispatchMode):
    """Notes the operations whose result the host must have before it can go on."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if name.startswith(("aten._local_scalar_dense", "aten.nonzero", "aten.unique")):
            self.operations.append(name)
        return function(*args, **(kwargs or {}))


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


def test_an_unknown_pooling_and_an_unknown_place_are_errors(tiny_bert, tmp_path):
    with pytest.raises(ConfigError, match="pooling 'max' is not known. Known: mean, first, last"):
        TransformerEncoder(load_network(str(tiny_bert)), pooling="max")
    with pytest.raises(ConfigError, match="neither a folder with a Hugging Face model"):
        load_network(str(tmp_path))
    with pytest.raises(ConfigError, match="no fast tokenizer"):
        load_tokenizer(str(tmp_path))
    for load in (load_network, load_tokenizer):
        for place in (str(tmp_path / "none"), "./none", "some/folder/none"):
            with pytest.raises(ConfigError, match="no such folder"):
                load(place)


def test_a_forward_pass_asks_the_device_for_no_number(tiny_bert, texts):
    """Whatever needs a number from a tensor makes the host wait for the device, on a GPU."""
    tokens = encode(texts, load_tokenizer(str(tiny_bert)), max_tokens=32)
    same = encode(["red apple"] * 3, load_tokenizer(str(tiny_bert)), max_tokens=32)
    encoder = TransformerEncoder(load_network(str(tiny_bert)))
    with Asked() as asked:
        encoder(tokens)
        encoder(same)
    assert asked.operations == []


def test_a_saved_network_loads_with_the_library_alone(tiny_bert, texts, tmp_path):
    from transformers import AutoModel

    TransformerEncoder(load_network(str(tiny_bert))).save(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_the_longest_text_is_that_of_the_position_table(tiny_bert):
    from transformers import RobertaConfig, RobertaModel

    assert TransformerEncoder(load_network(str(tiny_bert))).max_positions == 64
    # RoBERTa counts positions from behind the padding id.
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = RobertaConfig(**shape, vocab_size=9, max_position_embeddings=18, pad_token_id=1)
    assert TransformerEncoder(RobertaModel(config)).max_positions == 16
