"""Plugins that work, and those that are left out."""

import logging
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from philorag.errors import ConfigurationError
from philorag.plugins import GROUP, Plugin, Registrar, ToolPlugin, discover, load_plugins
from philorag.settings import Settings

if TYPE_CHECKING:
    from philorag.services import Services


async def alpha() -> int:
    """One."""
    return 1


async def beta() -> int:
    """Two."""
    return 2


def sync() -> int:
    return 3


class OwnSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PHILORAG_PLUGIN_TEST_")

    width: int = Field(default=5, ge=1)
    token: str = ""


def offering(*functions: Any, writes: Any = False) -> Any:
    def register(registrar: Registrar) -> None:
        for function in functions:
            registrar.tool(title=function.__name__, writes=writes)(function)

    return register


def failing(registrar: Registrar) -> None:
    raise RuntimeError("no model at /srv/models/big.bin")


def exiting(registrar: Registrar) -> None:
    raise SystemExit(3)


good = Plugin("good", offering(alpha))
other = Plugin("other", offering(beta))
clashing = Plugin("clashing", offering(beta, alpha))
writer = Plugin("writer", offering(alpha, writes=True))
synchronous = Plugin("synchronous", offering(sync))
twice = Plugin("twice", offering(alpha, alpha))
unregistered = Plugin("unregistered", failing)
quitter = Plugin("quitter", exiting)
configured = Plugin("configured", offering(alpha), settings=OwnSettings)
no_plugin = object()


def point(name: Any, attribute: Any = None, module: Any = __name__) -> Any:
    return EntryPoint(name=name, value=f"{module}:{attribute or name}", group=GROUP)


def load(*points: Any, **settings: Any) -> Any:
    return {one.toolset: one for one in load_plugins(Settings(**settings), list(points))}


def test_a_plugin_is_loaded_with_its_tools():
    """A plugin that works has its tools and no problem."""
    loaded = load(point("good"))["good"]
    assert (loaded.tools, loaded.problem, loaded.plugin) == (("alpha",), None, good)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (point("missing", module="no_such_module"), "ModuleNotFoundError: No module named 'no_such_module'"),
        (point("absent", "absent"), "AttributeError: module 'tests.unit.test_plugins' has no attribute 'absent'"),
        (point("no_plugin"), "TypeError: tests.unit.test_plugins:no_plugin is not a ToolPlugin"),
        (point("unregistered"), "RuntimeError: no model at big.bin"),
        (point("quitter"), "SystemExit: 3"),
        (point("synchronous"), "TypeError: The tool sync must be an async function"),
        (point("twice"), "ValueError: "),
    ],
    ids=lambda value: value.name if isinstance(value, EntryPoint) else "",
)
def test_a_broken_plugin_is_left_out_with_its_reason(broken, problem, caplog):
    """What fails to import or register is left out, its reason is kept and logged, and the others work."""
    module = __name__
    loaded = load(broken, point("good"))
    assert loaded[broken.name].problem.startswith(problem.replace("tests.unit.test_plugins", module))
    assert loaded[broken.name].tools == ()
    assert loaded["good"].problem is None
    assert f"The plugin {broken.name} (?) is left out" in caplog.text


def test_a_plugin_has_its_own_settings(monkeypatch):
    """A plugin's settings come from variables with its prefix."""
    monkeypatch.setenv("PHILORAG_PLUGIN_TEST_WIDTH", "9")
    assert load(point("configured"))["configured"].registrar.settings.width == 9


def test_a_plugin_with_wrong_settings_is_left_out_and_its_value_is_not_shown(monkeypatch):
    """A plugin that can't be configured is left out with the setting's name, without the value."""
    monkeypatch.setenv("PHILORAG_PLUGIN_TEST_WIDTH", "hunter2")
    problem = load(point("configured"))["configured"].problem
    assert problem.startswith("its settings are wrong: width: ")
    assert "hunter2" not in problem


def test_the_second_plugin_with_a_tool_name_is_refused():
    """Of two plugins that claim one tool name the second is left out as a whole."""
    loaded = load(point("good"), point("clashing"))
    assert loaded["good"].problem is None
    assert loaded["clashing"].problem == "its tool alpha is already offered by ?"
    assert loaded["clashing"].registrar is None


def test_a_refused_plugin_keeps_no_name():
    """What a plugin that was left out would have offered is free for the next."""
    loaded = load(point("good"), point("clashing"), point("other"))
    assert loaded["other"].tools == ("beta",)


def test_the_second_plugin_of_a_toolset_is_refused():
    """Of two plugins with one toolset the second is left out."""
    first, second = load_plugins(Settings(), [point("good"), point("good", "other")])
    assert first.problem is None
    assert second.problem == "the toolset good is already provided by ?"


def test_an_unknown_toolset_stops_the_start_with_the_known_ones():
    """PHILORAG_TOOLSETS with an unknown name stops the start and lists the names there are."""
    with pytest.raises(ConfigurationError, match=r"names wrong, which no installed plugin provides.*: good, other"):
        load(point("good"), point("other"), toolsets=("good", "wrong"))


def test_toolsets_narrow_and_what_is_not_wanted_is_not_imported():
    """Only the named toolsets are loaded; a broken plugin beside them isn't even looked at."""
    assert set(load(point("good"), point("unregistered"), toolsets=("good",))) == {"good"}


def test_the_gateway_is_always_on():
    """Neither PHILORAG_TOOLSETS nor PHILORAG_PLUGINS_DISABLED takes the toolset `gateway` away."""
    points = [point("gateway", "plugin", "philorag.tools.gateway"), point("good")]
    assert set(load(*points, toolsets=("good",), plugins_disabled=("gateway",))) == {"gateway", "good"}


def test_a_disabled_plugin_is_not_loaded():
    """PHILORAG_PLUGINS_DISABLED leaves a plugin out."""
    assert set(load(point("good"), point("other"), plugins_disabled=("other",))) == {"good"}


def test_disabling_what_is_not_installed_is_only_logged(caplog):
    """An unknown name in PHILORAG_PLUGINS_DISABLED is a warning."""
    with caplog.at_level(logging.WARNING):
        load(point("good"), plugins_disabled=("gone",))
    assert "PHILORAG_PLUGINS_DISABLED names gone" in caplog.text


def test_read_only_hides_what_writes():
    """With PHILORAG_READ_ONLY a tool that writes is not offered."""
    loaded = load(point("writer"), point("other"), read_only=True)
    assert (loaded["writer"].tools, loaded["other"].tools) == ((), ("beta",))


def test_built_in_plugins_are_found_first_and_not_imported():
    """Discovery names the built-in toolsets first, by their entry points."""
    found = discover()
    ours = [one.name for one in found if one.dist is not None and one.dist.name == "philorag"]
    assert [one.name for one in found][: len(ours)] == ours == sorted(ours)
    assert {"documents", "gateway", "ingest", "search", "store"} <= set(ours)


async def test_a_plugin_of_functions_is_a_tool_plugin():
    """`Plugin` satisfies the protocol, and starts and stops without doing anything."""
    assert isinstance(good, ToolPlugin)
    await good.start(cast("Services", None))
    await good.stop()
