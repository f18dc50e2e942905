from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, select, text, update

from philorag.model import ItemFailure, Job, JobState
from philorag.storage.repositories.base import Repository
from philorag.storage.tables import jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JOB_LOCKS", "JobRepository", "arguments_hash"]

JOB_LOCKS = 7_483_004
_UNHELD = "pg_try_advisory_xact_lock(:space, cast(id % 2147483648 as integer))"
_ABANDONED = text(f"""
update jobs set state = 'failed', updated_at = now(), finished_at = now()
 where library_id = :library_id and state = 'running' and {_UNHELD}
""")  # noqa: S608 - joined from constants
_RUNNING = text(f"""
select count(*) from jobs where library_id = :library_id and state = 'running' and not {_UNHELD}
""")  # noqa: S608 - joined from constants


def arguments_hash(kind: str, arguments: dict[str, Any]) -> str:
    """What two calls for the same work have in common."""
    return hashlib.sha256(json.dumps([kind, arguments], sort_keys=True).encode()).hexdigest()


class JobRepository(Repository):
    """Long work, as rows that outlive the call that began it.

    Who works on a job holds a lock (`Database.working_on`), so that a row that was left behind by a killed process is
    told from one that is under way.
    """

    async def new_id(self) -> int:
        """The id of a job that is about to start."""
        return int(await self._connection.scalar(text("select nextval('jobs_id_seq')")) or 0)

    async def start(self, job_id: int, kind: str, arguments: dict[str, Any]) -> None:
        """Record a job as running, and those that nobody works on any more as failed."""
        await self._connection.execute(_ABANDONED, {"library_id": self._library_id, "space": JOB_LOCKS})
        row = {
            "id": job_id,
            "library_id": self._library_id,
            "kind": kind,
            "arguments": arguments,
            "arguments_hash": arguments_hash(kind, arguments),
            "state": "running",
            "progress": {},
            "failures": [],
        }
        await self._connection.execute(insert(jobs).values(**row))

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
        return int(await self._connection.scalar(_RUNNING, {"library_id": self._library_id, "space": JOB_LOCKS}) or 0)

    def _is(self, job_id: int) -> Any:
        return and_(jobs.c.library_id == self._library_id, jobs.c.id == job_id)
