"""Numbers in messages."""


def distinct_texts(*numbers: float) -> list[str]:
    """Each number with six significant digits, or with as many more as it takes to tell different ones apart."""
    for digits in range(6, 17):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            return texts
    return [f"{number:.17g}" for number in numbers]


def counted(count: float, noun: str) -> str:
    """The noun with how many there are: `1 trial`, `2 trials`, `0.5 GPUs`."""
    return f"{count:.12g} {noun}" if count == 1 else f"{count:.12g} {noun}s"
