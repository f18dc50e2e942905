"""The whole line, from a folder to a cited answer."""

import shutil

from philorag.testing import call, connected


async def test_a_text_that_was_ingested_is_found_with_its_citation(settings, example_library):
    """A passage of an ingested file is found by its meaning, cited, and stands at its offsets."""
    shutil.copy(example_library / "stoic-assent.txt", settings.source_folder)
    async with connected(settings) as client:
        report = await call(client, "philograph_ingest", path=".")
        answer = await call(client, "philograph_search", query="With what gesture did Zeno explain assent?", limit=1)
        hit = answer["result"][0]
        document = await call(client, "get_document", document_id=hit["document_id"])
    assert report["documents_added"] == 1
    assert hit["citation"].endswith("1. Zeno's hand, ¶ 1")
    assert hit["matched_by"] == ["dense", "lexical"]
    assert document["content"][hit["locator"]["char_start"] : hit["locator"]["char_end"]] == hit["text"]
