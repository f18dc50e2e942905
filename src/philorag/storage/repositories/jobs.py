from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, select, update

from philorag.model import ItemFailure, Job, JobState
from philorag.storage.repositories.base import Repository
from philorag.storage.tables import jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JobRepository", "arguments_hash"]


def arguments_hash(kind: str, arguments: dict[str, Any]) -> str:
    """What two calls for the same work have in common."""
    return hashlib.sha256(json.dumps([kind, arguments], sort_keys=True).encode()).hexdigest()


class JobRepository(Repository):
    """Long work, as rows that outlive the call that began it."""

    async def start(self, kind: str, arguments: dict[str, Any]) -> int:
        row = {
            "library_id": self._library_id,
            "kind": kind,
            "arguments": arguments,
            "arguments_hash": arguments_hash(kind, arguments),
            "state": "running",
            "progress": {},
            "failures": [],
        }
        job_id: int = (await self._connection.execute(insert(jobs).values(**row).returning(jobs.c.id))).scalar_one()
        return job_id

    async def finish(
        self, job_id: int, state: JobState, *, result: dict[str, Any], failures: Sequence[ItemFailure]
    ) -> None:
        change = {
            "state": state,
            "result": result,
            "failures": [asdict(failure) for failure in failures],
            "updated_at": func.now(),
            "finished_at": func.now(),
        }
        await self._connection.execute(update(jobs).where(self._is(job_id)).values(**change))

    async def get(self, job_id: int) -> Job | None:
        row = (await self._connection.execute(select(jobs).where(self._is(job_id)))).mappings().one_or_none()
        if row is None:
            return None
        failures = tuple(ItemFailure(**failure) for failure in row["failures"])
        return Job(
            id=row["id"],
            kind=row["kind"],
            state=row["state"],
            progress=row["progress"],
            failures=failures,
            result=row["result"],
        )

    async def running(self) -> int:
        """How many jobs of the library are under way."""
        mine = and_(jobs.c.library_id == self._library_id, jobs.c.state == "running")
        return await self._connection.scalar(select(func.count()).select_from(jobs).where(mine)) or 0

    def _is(self, job_id: int) -> Any:
        return and_(jobs.c.library_id == self._library_id, jobs.c.id == job_id)
