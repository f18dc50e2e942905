"""The files of the model multilingual-e5-small; what each of them is stands in its `manifest.json`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["__version__", "model_folder"]

__version__ = "0.1.0"


def model_folder() -> Path:
    """The folder that holds `manifest.json` and the files it lists."""
    return Path(__file__).parent / "model"
