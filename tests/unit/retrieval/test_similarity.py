from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.embedding.local import LocalEmbedder
from philorag.embedding.protocol import SpaceIdentity
from philorag.retrieval.similarity import CALIBRATIONS, calibration, similarity
from philorag.storage.repositories.libraries import EmbeddingSpace

COSINES = st.floats(-1.01, 1.01)
COEFFICIENTS = st.floats(-1e6, 1e6)
LOCAL = next(identity for identity in CALIBRATIONS if identity.provider == "local")
# Where docs/benchmarks.md puts the best F1.
FITTED_COSINE = 0.8574


def space(identity: SpaceIdentity, curve: dict[str, float] | None = None) -> EmbeddingSpace:
    return EmbeddingSpace(id=1, identity=identity, calibration=curve)


@pytest.mark.parametrize(("cosine", "expected"), [(-0.4, 0), (0, 0), (0.7, 0.7), (1, 1), (1.0000001, 1)])
def test_an_unfitted_space_shows_the_cosine(cosine: float, expected: float):
    """Before anything was fitted, the similarity is the cosine, never below 0 nor above 1."""
    assert similarity(cosine, None) == expected


@given(COSINES, st.floats(-30, 30), st.floats(-30, 30))
def test_a_fitted_space_has_the_contract_s_curve(cosine: float, a: float, b: float):
    """The similarity is 1/(1+exp(-(a·cos+b)))."""
    assert similarity(cosine, {"a": a, "b": b}) == pytest.approx(1 / (1 + math.exp(-(a * cosine + b))), abs=1e-12)


@given(COSINES, COEFFICIENTS, COEFFICIENTS)
def test_a_similarity_is_in_0_to_1_whatever_was_fitted(cosine: float, a: float, b: float):
    """No coefficients make it overflow or leave its range."""
    assert 0 <= similarity(cosine, {"a": a, "b": b}) <= 1


@given(COSINES, COSINES, st.floats(0, 50), st.floats(-50, 50))
def test_a_greater_cosine_is_never_less_similar(first: float, second: float, a: float, b: float):
    """The curve keeps the order, so that a threshold cuts a ranking at one place."""
    low, high = sorted((first, second))
    assert similarity(low, {"a": a, "b": b}) <= similarity(high, {"a": a, "b": b})


def test_the_local_model_is_fitted(embedder: LocalEmbedder):
    """A new revision, folding or size of the built-in model has to be fitted before it goes out."""
    assert embedder.space in CALIBRATIONS


def test_the_curve_of_record_is_0_6_at_the_best_cosine():
    """The default threshold cuts where the labelled pairs have the best F1."""
    assert similarity(FITTED_COSINE, calibration(space(LOCAL))) == pytest.approx(0.6, abs=0.005)


def test_the_curve_of_record_rises_through_the_range_of_the_model():
    """A step of the cosine of 0.005 is a visible step of the similarity, from hardly any to almost full."""
    curve = calibration(space(LOCAL))
    shown = [similarity(0.78 + 0.005 * step, curve) for step in range(31)]
    assert all(first < second for first, second in pairwise(shown))
    assert shown[0] < 0.01
    assert shown[-1] > 0.99


@pytest.mark.parametrize(
    "other",
    [
        replace(LOCAL, provider="another"), replace(LOCAL, model="another"), replace(LOCAL, revision="another"),
        replace(LOCAL, folding="another"),
    ],
)  # fmt: skip
def test_another_space_is_unfitted(other: SpaceIdentity):
    """A curve holds for the space that it was fitted for and for no neighbour of it."""
    assert calibration(space(other)) is None


def test_the_database_s_calibration_wins():
    """What an operator fitted is used instead of what the code knows."""
    theirs = {"a": 10.0, "b": -8.0}
    assert calibration(space(LOCAL, theirs)) == theirs
    assert calibration(space(replace(LOCAL, model="another"), theirs)) == theirs
