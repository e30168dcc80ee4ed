"""rlforge: the whole life of a GRPO experiment, from smoke test to verdict."""

__version__ = "0.1.0"
