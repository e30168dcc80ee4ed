"""Smoke gates and doctor rules: small functions over what a run logged and what smoke measured beside it.

Nothing here loads a model: an old run is judged from its files alone.
"""

from rlforge_cli.checks.check import Check, Finding, Status
from rlforge_cli.checks.evidence import Evidence, Probes
from rlforge_cli.checks.table import GATES, REWARD_GATES, Gate, passed, run_gates

__all__ = ["GATES", "REWARD_GATES", "Check", "Evidence", "Finding", "Gate", "Probes", "Status", "passed", "run_gates"]
