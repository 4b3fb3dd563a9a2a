"""From token ids to vectors: encoders, heads and label vectors."""

from __future__ import annotations

from umpteen.registry import Registry

ENCODERS = Registry(
    "umpteen.encoders",
    {
        "bag": "umpteen.model.frugal.bag:BagEncoder",
        "chunked": "umpteen.model.chunked:ChunkedEncoder",
        "convolution": "umpteen.model.frugal.convolution:ConvolutionEncoder",
        "inception": "umpteen.model.frugal.inception:InceptionEncoder",
        "transformer": "umpteen.model.transformer:TransformerEncoder",
    },
)
