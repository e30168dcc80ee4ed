"""What a gate says: pass, warn, fail or skip, with the value, the threshold, why, and what to do."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["pass", "warn", "fail", "skip"]
Value = float | int | str | None


class Finding(msgspec.Struct, frozen=True):
    """A gate's verdict. Example: ``Finding("fail", 0.71, "<= 0.5", "71 % of groups teach nothing", "--set G=16")``."""

    status: Status
    value: Value = None
    threshold: str = ""
    why: str = ""
    fix: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A finding under its gate's name: an entry of ``checks`` in `rlforge smoke --json`."""

    name: str
    status: Status
    value: Value = None
    threshold: str = ""
    why: str = ""
    fix: str = ""


def named(name: str, finding: Finding) -> Check:
    value = 0.0 if finding.value == 0 and isinstance(finding.value, float) else finding.value  # -0.0 reads as an error
    return Check(
        name=name, status=finding.status, value=value, threshold=finding.threshold, why=finding.why,
        fix=finding.fix,
    )  # fmt: skip


def skip(why: str) -> Finding:
    return Finding("skip", why=why)
