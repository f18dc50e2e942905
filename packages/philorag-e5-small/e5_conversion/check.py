"""Refuses a quantised body that strays from the same body in 32-bit floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnxruntime import InferenceSession

if TYPE_CHECKING:
    from e5_conversion.container import Container, Floats

__all__ = ["check_body"]

TEXTS = 8
TOKENS = 48
# Real texts agree at 0.998, and so do these random tokens.
SMALLEST_COSINE = 0.99


def check_body(quantised: bytes, exact: bytes, source: Container) -> None:
    """Raise RuntimeError unless both bodies agree on a fixed set of token rows."""
    inputs = _inputs(source)
    left, right = (_unit(_run(body, inputs)) for body in (quantised, exact))
    cosine = float((left * right).sum(axis=1).min())
    if not cosine >= SMALLEST_COSINE:
        raise RuntimeError(f"The quantised model agrees with the exact one at cosine {cosine:.4f} only.")


def _inputs(source: Container) -> dict[str, Floats]:
    ids = np.random.default_rng(0).integers(4, 50_000, (TEXTS, TOKENS))
    words = source.matrix("emb.word", source.shape.words)[ids]
    positions = source.floats("emb.pos").reshape(-1, source.shape.hidden)[:TOKENS]
    return {"embeddings": words + positions, "mask": np.ones((TEXTS, TOKENS), np.float32)}


def _run(body: bytes, inputs: dict[str, Floats]) -> Floats:
    session = InferenceSession(body, providers=["CPUExecutionProvider"])
    outputs: list[Any] = session.run(["means"], inputs)
    return np.asarray(outputs[0], np.float32)


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
