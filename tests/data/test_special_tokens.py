"""What a tokenizer puts around a text, and what chunks keep of it."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from umpteen.data.special_tokens import special_tokens, tokens_in_chunks
from umpteen.data.tokens import encode
from umpteen.errors import ConfigError

WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "word": 4}


def make(template=None):
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    if template:
        names = [("[CLS]", 1), ("[SEP]", 2)]
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=names)
    return tokenizer


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, (0, 0)),
        ("[CLS] $A [SEP]", (1, 1)),
        ("$A [SEP]", (0, 1)),
        ("[CLS] [CLS] $A", (2, 0)),
    ],
)
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_tokens_before_and_behind(template, expected, side):
    tokenizer = make(template)
    if side:
        tokenizer.enable_padding(direction=side, length=9, pad_id=3, pad_token="[PAD]")
    assert special_tokens(tokenizer) == expected


def test_chunks_keep_as_much_as_fits_them():
    tokenizer = make("[CLS] $A [SEP]")
    assert tokens_in_chunks(tokenizer, 10, 1) == 10
    kept = tokens_in_chunks(tokenizer, 10, 3)
    found = encode(["word " * 100], tokenizer, max_tokens=kept)
    assert len(found.ids) - 2 == 3 * (10 - 2)


def test_a_chunk_without_room_is_a_sentence():
    with pytest.raises(ConfigError, match="give at least 3"):
        tokens_in_chunks(make("[CLS] $A [SEP]"), 2, 4)
