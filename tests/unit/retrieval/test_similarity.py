from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.retrieval.similarity import similarity

COSINES = st.floats(-1.01, 1.01)
COEFFICIENTS = st.floats(-1e6, 1e6)


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
