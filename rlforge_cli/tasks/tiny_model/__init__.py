"""The embedded model of the ``arithmetic`` task and how it was made: ``python -m rlforge_cli.tasks.tiny_model OUT``.

A Qwen3 of 308,480 parameters is first taught the task (``gold``), then taught bad habits (``spoiled``), and shipped in
``rlforge_cli/assets/tiny-arith``. Its mistakes are systematic on purpose: a model whose errors are random reaches its
ceiling in twenty GRPO steps, and no experiment on it shows anything.
"""
