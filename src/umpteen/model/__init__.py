"""From token ids to vectors: encoders, heads and label vectors."""

ENCODERS = {
    "bag": "umpteen.model.frugal.bag:BagEncoder",
    "chunked": "umpteen.model.chunked:ChunkedEncoder",
    "convolution": "umpteen.model.frugal.convolution:ConvolutionEncoder",
    "transformer": "umpteen.model.transformer:TransformerEncoder",
}
