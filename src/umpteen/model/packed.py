"""Which Hugging Face networks can run on packed tokens, and where each keeps its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from umpteen.compute.prepacked_linear import PrepackedLinear


@dataclass(frozen=True)
class Layer:
    """One layer's own modules, and how much its dropouts drop."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    output_norm: nn.LayerNorm
    attention_rate: float
    """Of the attention's shares."""
    context_rate: float
    """Of what the attention adds."""
    output_rate: float
    """Of what the feed-forward part adds."""

    @property
    def linears(self) -> tuple[nn.Linear, ...]:
        """The six products."""
        return self.query, self.key, self.value, self.output, self.up, self.down


class PrepackedLayers:
    """Each layer's products with weights in blocks: queries, keys and values as one; and so on.

    Made again where a weight is another or was changed in place. They are a copy of the layers'
    weights, which large networks do without.
    """

    def __init__(self) -> None:
        self._of: tuple[tuple[int, int], ...] = ()
        self._held: list[
            tuple[PrepackedLinear, PrepackedLinear, PrepackedLinear, PrepackedLinear]
        ] = []

    def __call__(
        self, layers: Sequence[Layer]
    ) -> list[tuple[PrepackedLinear, PrepackedLinear, PrepackedLinear, PrepackedLinear]]:
        """Return (queries, keys and values; output; up; down) of each layer."""
        own = [module for layer in layers for module in layer.linears]
        now = tuple((p.data_ptr(), p._version) for m in own for p in (m.weight, m.bias))
        if now != self._of:
            self._held = [_ready(layer) for layer in layers]
            self._of = now
        return self._held


def _ready(
    layer: Layer,
) -> tuple[PrepackedLinear, PrepackedLinear, PrepackedLinear, PrepackedLinear]:
    three = (layer.query, layer.key, layer.value)
    weight = torch.cat([module.weight for module in three])
    together = PrepackedLinear.of(weight, torch.cat([module.bias for module in three]))
    output, up, down = (
        PrepackedLinear.of(module.weight, module.bias)
        for module in (layer.output, layer.up, layer.down)
    )
    return together, output, up, down


@dataclass(frozen=True)
class Form:
    """A network of the BERT family, taken apart."""

    word: nn.Embedding
    position: nn.Embedding
    kind: nn.Embedding | None
    """Token types, of which every token has the first."""
    norm: nn.LayerNorm
    rate: float
    """Dropout of the embeddings."""
    first_position: int
    """The position of a text's first token."""
    padding: int | None
    """A token that the network gives no position of its own, if there is one."""
    heads: int
    layers: tuple[Layer, ...]
    bias: Callable[[int], Tensor] | None = None
    """The longest text's length T to (heads, T, T), which is added to the attention's scores."""
    project: nn.Linear | None = None
    """From the embeddings' width to the layers', where these differ."""
    ready: PrepackedLayers = field(default_factory=lambda: PrepackedLayers(), compare=False)
    """Copies of the layers' weights for few tokens, made when first asked for."""

    @property
    def width(self) -> int:
        """Of a token's vector within the layers."""
        return self.word.embedding_dim if self.project is None else self.project.out_features

    @property
    def max_positions(self) -> int:
        """The longest text there are positions for."""
        return self.position.num_embeddings - self.first_position


def packed_form(network: nn.Module) -> Form | None:
    """Return the network taken apart; None where it must be run by its own code.

    Its class must be in the table, and it must be what that class usually is: encoder, exact GELU,
    absolute positions, whole heads, and no module wrapped or replaced.
    """
    describe = PACKED.get(type(network).__name__)
    config: Any = getattr(network, "config", None)
    if describe is None or not type(network).__module__.startswith("transformers."):
        return None
    usual = (
        getattr(config, "position_embedding_type", "absolute") in ("absolute", None)
        and not getattr(config, "is_decoder", False)
        and not getattr(config, "add_cross_attention", False)
        and (getattr(config, "hidden_act", None) or getattr(config, "activation", None)) == "gelu"
    )
    form = describe(network, config) if usual else None
    return form if form is not None and _is_plain(form) else None


def _is_plain(form: Form) -> bool:
    """Return whether nothing is wrapped or pruned and all weights share one dtype and device."""
    width = form.width
    tables = [form.word, form.position, *([] if form.kind is None else [form.kind])]
    whole = [
        m for layer in form.layers for m in (layer.query, layer.key, layer.value, layer.output)
    ]
    linears = [*whole, *(m for layer in form.layers for m in (layer.up, layer.down))]
    linears += [] if form.project is None else [form.project]
    norms = [form.norm]
    norms += [m for layer in form.layers for m in (layer.attention_norm, layer.output_norm)]
    kinds = ((tables, nn.Embedding), (linears, nn.Linear), (norms, nn.LayerNorm))
    if not form.layers or width % form.heads != 0:
        return False
    if not all(type(m) is kind for modules, kind in kinds for m in modules):
        return False
    if any(m.bias is None for m in [*linears, *norms]):
        return False
    own = [m.weight for m in tables]
    own += [p for m in linears for p in (m.weight, m.bias)]
    own += [p for m in norms for p in (m.weight, m.bias)]
    alike = len({(p.dtype, p.device) for p in own}) == 1
    return alike and all(m.weight.shape == (width, width) for m in whole)


def _bert(network: Any, config: Any) -> Form:
    embeddings = network.embeddings
    layers = tuple(
        Layer(
            query=layer.attention.self.query,
            key=layer.attention.self.key,
            value=layer.attention.self.value,
            output=layer.attention.output.dense,
            attention_norm=layer.attention.output.LayerNorm,
            up=layer.intermediate.dense,
            down=layer.output.dense,
            output_norm=layer.output.LayerNorm,
            attention_rate=layer.attention.self.dropout.p,
            context_rate=layer.attention.output.dropout.p,
            output_rate=layer.output.dropout.p,
        )
        for layer in network.encoder.layer
    )
    return _form(embeddings, embeddings.token_type_embeddings, config.num_attention_heads, layers)


def _electra(network: Any, config: Any) -> Form:
    # The projection is there only where it changes the width.
    return replace(_bert(network, config), project=getattr(network, "embeddings_project", None))


def _ernie(network: Any, config: Any) -> Form | None:
    return None if config.use_task_id else _bert(network, config)


def _distilbert(network: Any, config: Any) -> Form:
    layers = tuple(
        Layer(
            query=layer.attention.q_lin,
            key=layer.attention.k_lin,
            value=layer.attention.v_lin,
            output=layer.attention.out_lin,
            attention_norm=layer.sa_layer_norm,
            up=layer.ffn.lin1,
            down=layer.ffn.lin2,
            output_norm=layer.output_layer_norm,
            attention_rate=layer.attention.dropout.p,
            context_rate=0.0,
            output_rate=layer.ffn.dropout.p,
        )
        for layer in network.transformer.layer
    )
    return _form(network.embeddings, None, config.n_heads, layers)


def _mpnet(network: Any, config: Any) -> Form:
    layers = tuple(
        Layer(
            query=layer.attention.attn.q,
            key=layer.attention.attn.k,
            value=layer.attention.attn.v,
            output=layer.attention.attn.o,
            attention_norm=layer.attention.LayerNorm,
            up=layer.intermediate.dense,
            down=layer.output.dense,
            output_norm=layer.output.LayerNorm,
            attention_rate=layer.attention.attn.dropout.p,
            context_rate=layer.attention.dropout.p,
            output_rate=layer.output.dropout.p,
        )
        for layer in network.encoder.layer
    )
    encoder = network.encoder

    def bias(longest: int) -> Tensor:
        places = torch.arange(longest, device=encoder.relative_attention_bias.weight.device)
        buckets = encoder.relative_position_bucket(places[None, :] - places[:, None])
        found: Tensor = encoder.relative_attention_bias(buckets).permute(2, 0, 1)
        return found

    return _form(network.embeddings, None, config.num_attention_heads, layers, bias)


def _form(
    embeddings: Any,
    kind: nn.Embedding | None,
    heads: int,
    layers: tuple[Layer, ...],
    bias: Callable[[int], Tensor] | None = None,
) -> Form:
    # RoBERTa and its like number positions from behind the padding token's id.
    padding = embeddings.position_embeddings.padding_idx
    return Form(
        word=embeddings.word_embeddings,
        position=embeddings.position_embeddings,
        kind=kind,
        norm=embeddings.LayerNorm,
        rate=embeddings.dropout.p,
        first_position=0 if padding is None else padding + 1,
        padding=padding,
        heads=heads,
        layers=layers,
        bias=bias,
    )


PACKED: dict[str, Callable[[Any, Any], Form | None]] = {
    "BertModel": _bert,
    "CamembertModel": _bert,
    "Data2VecTextModel": _bert,
    "DistilBertModel": _distilbert,
    "ElectraModel": _electra,
    "ErnieModel": _ernie,
    "RobertaModel": _bert,
    "XLMRobertaModel": _bert,
    "MPNetModel": _mpnet,
}
"""How to take a network apart, by the name of its class; None where it is an unusual one."""
