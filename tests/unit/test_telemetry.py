"""Where log records go."""

import logging

import pytest

from philorag.settings import Settings
from philorag.telemetry import configure_logging

LOGGERS = ("", "fastmcp", "mcp", "alembic", "sqlalchemy")


@pytest.fixture(autouse=True)
def restore_logging():
    """What pytest and the libraries set up is put back."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


@pytest.fixture(params=["philorag.tools", "fastmcp.server", "mcp.server", "asyncio"])
def logger(request):
    return logging.getLogger(request.param)


def test_records_go_to_standard_error(capsys, logger):
    """Every library's records go to standard error through one handler, each once."""
    configure_logging(Settings())
    logger.warning("something")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(f"WARNING {logger.name}: something\n")
    assert captured.err.count("something") == 1


def test_records_go_to_the_operators_file(tmp_path, capsys, logger):
    """With a log file nothing goes to standard error, and its folder is made."""
    configure_logging(Settings(log_file=tmp_path / "logs" / "philorag.log"))
    logger.warning("something")
    assert capsys.readouterr().err == ""
    assert (tmp_path / "logs" / "philorag.log").read_text().endswith(f"{logger.name}: something\n")
    logging.getLogger().handlers[0].close()


@pytest.mark.parametrize("name", ["mcp", "fastmcp", "sqlalchemy", "alembic"])
def test_libraries_stay_quiet_when_we_are_not(name):
    """At DEBUG the libraries still log warnings only: their debug records hold what clients send."""
    configure_logging(Settings(log_level="DEBUG"))
    assert not logging.getLogger(f"{name}.anything").isEnabledFor(logging.INFO)
    assert logging.getLogger("philorag").isEnabledFor(logging.DEBUG)


def test_a_higher_level_counts_for_libraries_too(capsys):
    """At ERROR nobody's warnings are logged."""
    configure_logging(Settings(log_level="ERROR"))
    logging.getLogger("fastmcp.server").warning("something")
    assert capsys.readouterr().err == ""
