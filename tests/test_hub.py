from __future__ import annotations

import os
import socket
import sys
import types

import pytest

from rlforge_cli.hub import settle_offline


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "x")  # so that what the code sets is undone afterwards
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", types.SimpleNamespace(HF_HUB_OFFLINE=False))


def test_an_unreachable_hub_switches_to_the_cache(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        settle_offline()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is True


def test_a_reachable_hub_is_used(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        settle_offline()
    assert "HF_HUB_OFFLINE" not in os.environ
    assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is False


def test_a_proxy_is_taken_to_lead_somewhere(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    settle_offline()
    assert "HF_HUB_OFFLINE" not in os.environ
