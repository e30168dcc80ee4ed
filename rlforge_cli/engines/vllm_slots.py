"""Less work for vLLM's scheduler: for a small model that, not what the GPU does, is the time of a rollout."""

from __future__ import annotations

from typing import Any


def seek_slots_by_block(llm: Any) -> None:
    """Let vLLM seek room in its cache when a sequence enters a new block, no longer at every token of every sequence.

    The token at position c lies in the block of position c - 1 unless the block size divides c: there is nothing to
    find. What else such a call does, entering full blocks into the prefix cache, the next one does. Where the cache is
    not of this kind (attention windows, states, blocks of several sizes), or vLLM has changed, it is left alone.
    """
    try:
        manager = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager
        seek, nothing_new = manager.allocate_slots, manager.empty_kv_cache_blocks
        kinds = {(type(part).__name__, part.block_size) for part in manager.coordinator.single_type_managers}
    except AttributeError:
        return
    if len(kinds) != 1 or "FullAttentionManager" not in dict(kinds):
        return
    ((_, size),) = kinds

    def allocate_slots(request: Any, num_new_tokens: int, *more: Any, **options: Any) -> Any:
        plain = not more and options in ({}, {"num_lookahead_tokens": 0})
        if plain and num_new_tokens == 1 and request.num_computed_tokens % size:
            return nothing_new
        return seek(request, num_new_tokens, *more, **options)

    manager.allocate_slots = allocate_slots
