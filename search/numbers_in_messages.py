"""Numbers in messages."""


def distinct_texts(*numbers: float) -> list[str]:
    """Each number with six significant digits, or with as many more as it takes to tell different ones apart.

    If that takes all digits, as Python and JSON write them: 0.3, not 0.29999999999999999.
    """
    for digits in range(6, 17):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(set(numbers)):
            return texts
    return [repr(number) for number in numbers]


def counted(count: float, noun: str) -> str:
    """The noun with how many there are: `1 trial`, `2 trials`, `0.5 GPUs`."""
    return f"{count:.12g} {noun}" if count == 1 else f"{count:.12g} {noun}s"
