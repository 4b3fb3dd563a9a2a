"""Stock modules of sentence-transformers as files: JSON and safetensors, without the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from torch import Tensor

from umpteen.files import write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BASE = "sentence_transformers.base.modules"
OWN = "sentence_transformers.sentence_transformer.modules"
TYPES = {
    "Transformer": f"{BASE}.transformer.Transformer",
    "Dense": f"{BASE}.dense.Dense",
    "Normalize": f"{BASE}.normalize.Normalize",
    "Pooling": f"{OWN}.pooling.Pooling",
    "WordEmbeddings": f"{OWN}.word_embeddings.WordEmbeddings",
    "WordWeights": f"{OWN}.word_weights.WordWeights",
}
TOKENIZER = f"{OWN}.tokenizer.word.TransformersTokenizerWrapper"
ACTIVATIONS = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "silu": "torch.nn.modules.activation.SiLU",
}


@dataclass(frozen=True)
class Module:
    """A module: its kind, its settings and its weights."""

    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    config_file: str = "config.json"


def dense(weight: Tensor, bias: Tensor | None, activation: str) -> Module:
    """Return a dense layer with an activation."""
    out, size = weight.shape
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    config = {
        "in_features": size,
        "out_features": out,
        "bias": bias is not None,
        "activation_function": ACTIVATIONS[activation],
        "module_input_name": "sentence_embedding",
        "module_output_name": "sentence_embedding",
    }
    return Module("Dense", config, tensors)


def pooling(dim: int, mode: str) -> Module:
    """Return pooling by ``mean``, ``cls`` or ``lasttoken``."""
    return Module(
        "Pooling", {"embedding_dimension": dim, "pooling_mode": mode, "include_prompt": True}
    )


def word_embeddings(table: Tensor, max_tokens: int) -> Module:
    """Return token vectors, (V, D); the tokenizer goes into the same folder."""
    config = {
        "tokenizer_class": TOKENIZER,
        "update_embeddings": False,
        "max_seq_length": max_tokens,
    }
    return Module(
        "WordEmbeddings", config, {"emb_layer.weight": table}, "wordembedding_config.json"
    )


def word_weights(tokens: Sequence[str], weights: Tensor) -> Module:
    """Return weights of tokens in the order of their ids, (V,)."""
    config = {
        "vocab": list(tokens),
        "word_weights": dict(zip(tokens, weights.tolist(), strict=True)),
        "unknown_word_weight": 1,
    }
    return Module("WordWeights", config, {"emb_layer.weight": weights.reshape(-1, 1)})


def write_modules(folder: Path, modules: Sequence[Module], *, first: str) -> None:
    """Write modules.json, what describes the model, and each module.

    Args:
        folder: An empty folder.
        modules: In their order.
        first: The subfolder of the first module; empty for the folder itself.
    """
    listed = []
    for number, module in enumerate(modules):
        path = f"{number}_{module.kind}" if number else first
        listed.append(
            {"idx": number, "name": str(number), "path": path, "type": TYPES[module.kind]}
        )
        place = folder / path
        place.mkdir(exist_ok=True)
        write_json(place / module.config_file, module.config)
        if module.tensors:
            tensors = {
                name: tensor.detach().cpu().float().contiguous().clone()
                for name, tensor in module.tensors.items()
            }
            save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "modules.json", listed)
    about = {
        "model_type": "SentenceTransformer",
        "prompts": {"query": "", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine" if modules[-1].kind == "Normalize" else "dot",
    }
    write_json(folder / "config_sentence_transformers.json", about)


def write_tokenizer(folder: Path, tokenizer: Tokenizer, max_tokens: int) -> None:
    """Write a tokenizer that ``transformers.AutoTokenizer`` reads."""
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
    }
    words = copy.get_vocab(with_added_tokens=True)
    for role, names in {
        "pad_token": ("[PAD]", "<pad>", "<|endoftext|>"),
        "unk_token": ("[UNK]", "<unk>"),
        "cls_token": ("[CLS]", "<s>"),
        "sep_token": ("[SEP]", "</s>"),
        "mask_token": ("[MASK]", "<mask>"),
    }.items():
        found = next((name for name in names if name in words), None)
        if found is not None:
            config[role] = found
    # Batches are padded, and any token can stand behind the end of a text.
    config.setdefault("pad_token", min(words, key=lambda word: words[word]))
    write_json(folder / "tokenizer_config.json", config)
