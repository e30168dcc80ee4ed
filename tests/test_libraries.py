from __future__ import annotations

import subprocess
import sys

LOADED = """
import gc, sys
from rlforge_cli.libraries import load_libraries
load_libraries()
assert {"torch", "transformers.modeling_utils"} <= set(sys.modules)
frozen = gc.get_freeze_count()
load_libraries()
print(gc.isenabled(), frozen > 100_000, gc.get_freeze_count() == frozen)
"""
HAD = """
import gc, transformers
from rlforge_cli.libraries import load_libraries
load_libraries()
print(gc.isenabled(), gc.get_freeze_count())
"""
OFF = """
import gc, sys
from rlforge_cli.libraries import load_libraries
gc.disable()
load_libraries()
print(gc.isenabled(), gc.get_freeze_count(), "transformers" in sys.modules)
"""


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_libraries_are_loaded_once_and_the_collector_is_on_again():
    assert printed(LOADED) == "True True True"


def test_a_process_that_has_them_or_no_collector_is_left_as_it_is():
    assert printed(HAD) == "True 0"
    assert printed(OFF) == "False 0 False"
