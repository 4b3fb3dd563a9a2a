"""A Hugging Face folder of a stranger: its code is not run, and nothing is asked on a terminal."""

import io
import json
import shutil

import pytest

from umpteen.errors import ConfigError
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.transformer import TransformerEncoder
from umpteen.registry import TRUST_VARIABLE

CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
Path({trace!r}).touch()
class Config(BertConfig):
    model_type = "planted"
class Network(BertModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def planted(tiny_bert, tmp_path, monkeypatch):
    """A folder whose settings name code in it, and somebody who answers yes to everything."""
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))
    folder = shutil.copytree(tiny_bert, tmp_path / "planted")
    trace = tmp_path / "trace"
    (folder / "planted.py").write_text(CODE.format(trace=str(trace)))
    settings = json.loads((folder / "config.json").read_text())
    settings["model_type"] = "planted"
    settings["auto_map"] = {"AutoConfig": "planted.Config", "AutoModel": "planted.Network"}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder, trace


def test_code_of_an_encoder_is_not_run(planted):
    folder, trace = planted
    with pytest.raises(ConfigError, match=r"has code of its own.*--trust-code"):
        load_network(str(folder))
    assert not trace.exists()


def test_code_of_a_trusted_encoder_is_run(planted, monkeypatch):
    folder, trace = planted
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    assert type(load_network(str(folder))).__name__ == "Network"
    assert trace.exists()


def test_code_of_a_tokenizer_is_not_run(planted):
    folder, trace = planted
    (folder / "tokenizer.json").unlink()
    settings = {"auto_map": {"AutoTokenizer": ["planted.Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError):
        load_tokenizer(str(folder))
    assert not trace.exists()


def test_an_attention_kernel_is_not_downloaded(planted, tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "kernel")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(settings | {"attn_implementation": "somebody/kernel"})
    )
    with pytest.raises(ConfigError, match="code of its own"):
        load_network(str(folder))


def test_weights_of_a_run_are_never_a_pickle(tiny_bert, tmp_path):
    """Nor are they downloaded: the folder of a run is complete or damaged."""
    import torch

    folder = shutil.copytree(tiny_bert, tmp_path / "pickled")
    weights = load_network(str(folder)).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load_network(str(folder))  # of an encoder that the user names they may be
    with pytest.raises(ConfigError, match="could not be loaded"):
        TransformerEncoder.load(folder, {})


def test_a_pickle_that_runs_code_is_a_sentence(tiny_bert, tmp_path):
    import pickle

    class Planted:
        def __reduce__(self):
            return (print, ("run",))

    folder = shutil.copytree(tiny_bert, tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"x": Planted()}, file)
    with pytest.raises(ConfigError, match="could not be loaded"):
        load_network(str(folder))
