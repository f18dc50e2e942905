from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text, update

from philorag.storage.repositories.base import Repository
from philorag.storage.tables import embedding_spaces, libraries

if TYPE_CHECKING:
    from philorag.embedding.protocol import SpaceIdentity

__all__ = ["EmbeddingSpace", "LibraryRepository"]

_OPEN_SPACE = text("select philorag_open_space(:provider, :model, :revision, :dimensions, :folding)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpace:
    """A registered space; *calibration* holds `a` and `b` of the similarity's logistic curve once it was fitted."""

    id: int
    identity: SpaceIdentity
    calibration: dict[str, float] | None


class LibraryRepository(Repository):
    """The caller's library itself, and the embedding space that its vectors are in."""

    async def active_space(self) -> EmbeddingSpace | None:
        """The library's space; None until something was embedded."""
        query = (
            select(embedding_spaces)
            .join(libraries, libraries.c.active_space_id == embedding_spaces.c.id)
            .where(libraries.c.id == self._library_id)
        )
        row = (await self._connection.execute(query)).mappings().one_or_none()
        return None if row is None else _space(dict(row))

    async def adopt_space(self, identity: SpaceIdentity) -> EmbeddingSpace:
        """The library's space, which becomes *identity* if it has none yet."""
        active = await self.active_space()
        if active is not None:
            return active
        parameters = {name: getattr(identity, name) for name in ("provider", "model", "revision", "folding")}
        space_id = await self._connection.scalar(_OPEN_SPACE, {**parameters, "dimensions": identity.dimensions})
        claim = (
            update(libraries)
            .where(libraries.c.id == self._library_id, libraries.c.active_space_id.is_(None))
            .values(active_space_id=space_id)
        )
        await self._connection.execute(claim)
        adopted = await self.active_space()
        assert adopted is not None
        return adopted


def _space(row: dict[str, Any]) -> EmbeddingSpace:
    from philorag.embedding.protocol import SpaceIdentity  # noqa: PLC0415 - the ground floor's, typed above

    fields = ("provider", "model", "revision", "dimensions", "folding")
    return EmbeddingSpace(
        id=row["id"], identity=SpaceIdentity(**{name: row[name] for name in fields}), calibration=row["calibration"]
    )
