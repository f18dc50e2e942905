"""Toolset `concordance`: every occurrence of a word in a document, with what stands around it."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from philorag.errors import InvalidInput
from philorag.plugins import CurrentToolContext, Plugin, Registrar, ToolContext


class ConcordanceSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PHILORAG_PLUGIN_CONCORDANCE_")
    width: int = Field(default=40, ge=10, le=200, description="Characters shown on each side of the word.")


class Line(BaseModel):
    before: str
    word: str
    after: str
    char_start: int
    content_trust: Literal["untrusted"] = "untrusted"


class Concordance(BaseModel):
    lines: list[Line]


def register(registrar: Registrar) -> None:
    width: int = registrar.settings.width

    async def concordance(
        document_id: Annotated[int, Field(ge=1, examples=[42])],
        word: Annotated[str, Field(min_length=1, max_length=100, examples=["virtue"])],
        context: ToolContext = CurrentToolContext(),  # noqa: B008 - how a tool asks for its context
    ) -> Concordance:
        """List every occurrence of a word in a document, in order, with the text before and after it."""
        if not word.isalpha():
            raise InvalidInput('`word` must be one word of letters, such as "virtue".', argument="word")
        services, caller = await context.services(), await context.caller()
        page = await services.documents.page(caller, document_id=document_id, path=None, offset=0, max_chars=10_000_000)
        text, lines = page.content, []
        for match in re.finditer(rf"\b{word}\b", text, re.IGNORECASE):
            start, end = match.span()
            before, after = text[max(0, start - width) : start], text[end : end + width]
            lines.append(Line(before=before, word=match[0], after=after, char_start=start))
        return Concordance(lines=lines)

    registrar.tool(title="Concordance")(concordance)


plugin = Plugin("concordance", register, settings=ConcordanceSettings)
