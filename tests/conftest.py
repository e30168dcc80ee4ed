"""What every test shares: quiet libraries, an own runs folder, and the shapes of grpo/ checked by jaxtyping."""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as the command sets it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
GRPO = Path(__file__).resolve().parents[1] / "rlforge_cli" / "grpo"
CHECKED = [module.name for module in pkgutil.iter_modules([str(GRPO)]) if module.name != "fused_head"]  # Triton's own
install_import_hook([f"rlforge_cli.grpo.{name}" for name in CHECKED], "beartype.beartype")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in an empty folder of its own, with none of the user's settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("RLFORGE_RUNS", "RLFORGE_PRESET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def gsm8k() -> Path:
    """The real data set, in the folder that RLFORGE_GSM8K names."""
    folder = Path(os.environ.get("RLFORGE_GSM8K", "gsm8k"))
    if not (folder / "train.jsonl").is_file():
        pytest.skip("GSM8K is not here: set RLFORGE_GSM8K to a folder with train.jsonl and test.jsonl")
    return folder
