"""A reward that random weights earn unequally: with equal rewards every gradient is 0."""


def spread(completions: list[str], problems: list[object]) -> list[float]:
    return [len(text) % 7 / 7 for text in completions]
