"""Loading torch and transformers: most of the time that a command of a few steps takes.

They leave 400 000 objects, none of which is ever garbage. The collector would go through them time and again while
they are loaded, in the middle of training, and once more at the end of the process: several seconds of a small run.
"""

from __future__ import annotations

import gc
import sys


def load_libraries() -> None:
    """Import what every model needs, with the collector off; what is alive then, it leaves alone from now on.

    Does nothing in a process that has them already. To be called before a model is loaded: a model is to be collected.
    """
    if "transformers" in sys.modules or not gc.isenabled():
        return
    gc.disable()
    try:
        # the base class brings what the modules of all architectures import
        from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()
