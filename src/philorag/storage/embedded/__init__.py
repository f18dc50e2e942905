"""PostgreSQL that comes with the installation: started by the first process that needs it, stopped by the last."""

from philorag.storage.embedded._launcher import ConnectionParameters, EmbeddedPostgres

__all__ = ["ConnectionParameters", "EmbeddedPostgres"]
