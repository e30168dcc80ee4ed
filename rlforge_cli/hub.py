"""Whether the model hub can be reached, found out once and quickly: its client would retry for a minute a file."""

from __future__ import annotations

import os
import socket
import sys
from urllib.parse import urlsplit

SECONDS = 3.0


def settle_offline() -> None:
    """Without a network, switch this process to the local cache (HF_HUB_OFFLINE), as a person would by hand.

    A proxy is taken to lead somewhere.
    """
    if os.environ.get("HF_HUB_OFFLINE") or any(
        os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")
    ):
        return
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=SECONDS).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"
        loaded = sys.modules.get("huggingface_hub.constants")
        if loaded is not None:  # it has read the variable already
            loaded.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
