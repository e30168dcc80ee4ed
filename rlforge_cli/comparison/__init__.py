"""Comparing runs: align their results, refuse unlike ones, call the statistics, give verdicts."""

from __future__ import annotations

from rlforge_cli.comparison.against_control import compare
from rlforge_cli.comparison.options import Options
from rlforge_cli.comparison.result import Comparison, Row

__all__ = ["Comparison", "Options", "Row", "compare"]
