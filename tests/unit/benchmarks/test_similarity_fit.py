"""The labelled pairs are well-formed, and what is fitted on them is what it says."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.similarity.fit import (
    PAIRS,
    THRESHOLD,
    Pair,
    best_threshold,
    cross_validated,
    fit,
    likeliest_slope,
    read_pairs,
    score,
)
from philorag.retrieval.similarity import CALIBRATIONS, similarity

BENCHMARKS = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"


def drawn(slope: float, offset: float, count: int = 20_000):
    """Cosines in e5's narrow band, and labels drawn by a logistic curve over them."""
    random = np.random.default_rng(7)
    cosines = random.normal(0.82, 0.025, count)
    return cosines, random.random(count) < 1 / (1 + np.exp(-(slope * cosines + offset)))


def test_the_pairs_judge_the_texts_of_the_example_library(example_library: Path):
    """Every pair names a text of the library, no pair stands twice, and both labels are there."""
    pairs = read_pairs()
    assert len(pairs) >= 150
    assert {pair.document for pair in pairs} == {path.name for path in example_library.iterdir()}
    assert len({(pair.query, pair.document) for pair in pairs}) == len(pairs)
    assert {pair.relevant for pair in pairs} == {True, False}
    assert all(pair.query == pair.query.strip() != "" for pair in pairs)


def test_every_text_answers_queries_and_many_queries_have_no_answer():
    """No text is without positives, and a good share of the queries is answered by none."""
    pairs = read_pairs()
    answered = {pair.query for pair in pairs if pair.relevant}
    queries = {pair.query for pair in pairs}
    assert len(queries) >= 100
    assert {pair.document for pair in pairs if pair.relevant} == {pair.document for pair in pairs}
    assert 0.1 < 1 - len(answered) / len(queries) < 0.4


def test_the_questions_of_the_tests_are_held_out():
    """What the examples offer as questions to try was not fitted on."""
    offered = (PAIRS.parents[2] / "examples" / "README.md").read_text(encoding="utf-8")
    assert not [pair.query for pair in read_pairs() if f"| {pair.query} |" in offered]


def test_the_slope_is_the_one_that_the_labels_were_drawn_with():
    """Newton's method finds the curve, narrow as the cosines are."""
    assert likeliest_slope(*drawn(90, -76)) == pytest.approx(90, rel=0.1)


def test_the_slope_does_not_depend_on_the_share_of_positives():
    """Leaving out nine of ten negatives changes the offset, which isn't kept, and not the slope."""
    cosines, relevant = drawn(90, -76)
    kept = relevant | (np.arange(len(relevant)) % 10 == 0)
    assert likeliest_slope(cosines[kept], relevant[kept]) == pytest.approx(likeliest_slope(cosines, relevant), rel=0.1)


def test_labels_that_a_cosine_separates_have_a_finite_slope():
    """The ridge holds where the likeliest slope is infinite."""
    cosines = np.linspace(0.75, 0.9, 50)
    assert 0 < likeliest_slope(cosines, cosines > 0.82) < 10_000


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([True, True, False, False], 0.82), ([True, False, True, False], 0.79), ([True, False, False, False], 0.85)],
)
def test_the_threshold_has_the_best_f1(labels: list[bool], expected: float):
    """It lies halfway between the last pair that is taken and the first that is left."""
    cosines = np.array([0.86, 0.84, 0.80, 0.78])
    assert best_threshold(cosines, np.array(labels)) == pytest.approx(expected)


def test_the_fitted_curve_is_0_6_at_the_threshold():
    """The offset puts the best threshold where the tool's default is."""
    fitted = fit(*drawn(90, -76))
    curve = {"a": fitted.a, "b": fitted.b}
    assert similarity(fitted.threshold, curve) == pytest.approx(THRESHOLD, abs=1e-4)
    assert similarity(fitted.threshold - 0.01, curve) < THRESHOLD < similarity(fitted.threshold + 0.01, curve)


def test_a_score_counts_pairs():
    """Two of three chosen are right, and two of four right ones are chosen."""
    result = score(np.array([1, 1, 1, 0, 0], bool), np.array([1, 1, 0, 1, 1], bool))
    assert (result.precision, result.recall, result.f1) == pytest.approx((2 / 3, 1 / 2, 4 / 7))


def test_a_query_is_judged_by_the_other_queries_threshold():
    """A fold whose cosines lie elsewhere gains nothing from knowing itself."""
    pairs = [Pair(f"query {at // 2}", str(at % 2), at % 2 == 0) for at in range(20)]
    cosines = np.array([0.86 if pair.relevant else 0.80 for pair in pairs])
    cosines[:2] = 0.70, 0.60
    relevant = np.array([pair.relevant for pair in pairs])
    assert cross_validated(pairs, cosines, relevant).recall == pytest.approx(0.9)


def test_the_documentation_has_the_constants_in_use():
    """docs/benchmarks.md shows a and b of every calibration."""
    text = BENCHMARKS.read_text(encoding="utf-8")
    assert CALIBRATIONS
    for curve in CALIBRATIONS.values():
        assert f"| {curve['a']} | {curve['b']} |" in text.replace("−", "-")
