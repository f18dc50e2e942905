"""Puts the converted model into the wheel."""  # noqa: INP001 - the build backend loads it by path

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The build backend loads this file by its path, so its neighbours can't be imported otherwise.
sys.path.insert(0, str(Path(__file__).parent))

from e5_conversion.assets import MODEL_FOLDER, convert


class ModelBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's
        self._scratch = tempfile.TemporaryDirectory(prefix="philorag-e5-small-")
        folder = Path(self._scratch.name)
        for path in convert(folder):
            build_data["force_include"][str(path)] = f"philorag_e5_small/{MODEL_FOLDER}/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatch's
        self._scratch.cleanup()
