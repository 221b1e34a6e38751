"""How many events, or metrics, are written together."""

from service.mirror.tracking_server.adaptive_size import AdaptiveSize, AdaptiveSizes


def test_a_failure_halves_what_failed() -> None:
    """What failed may be less than the size allows: otherwise a short backlog would be repeated whole."""
    size = AdaptiveSize(2000)
    size.failed(2000)
    assert size.now == 1000
    size.failed(5)
    assert size.now == 2


def test_a_failure_never_enlarges() -> None:
    """More may be written than the size allows: events of one transaction belong together."""
    size = AdaptiveSize(2000)
    size.failed(8)
    size.failed(100)
    assert size.now == 4


def test_the_smallest_size_is_kept() -> None:
    events, metrics = AdaptiveSize(2000), AdaptiveSize(800, least=50)
    for _ in range(20):
        events.failed(events.now)
        metrics.failed(metrics.now)
    assert (events.now, metrics.now) == (1, 50)


def test_successes_double_up_to_the_largest_size() -> None:
    size = AdaptiveSize(10)
    size.failed(4)
    sizes = []
    for _ in range(4):
        size.succeeded()
        sizes.append(size.now)
    assert sizes == [4, 8, 10, 10]


def test_only_successes_in_a_row_enlarge() -> None:
    """Otherwise a size that is too large would be tried again after each success."""
    size = AdaptiveSize(800, successes_to_grow=3)
    size.failed(400)
    sizes = []
    for succeeds in (True, True, False, True, True, True, True):
        if succeeds:
            size.succeeded()
        else:
            size.failed(size.now)
        sizes.append(size.now)
    assert sizes == [200, 200, 100, 100, 100, 200, 200]


def test_each_key_has_a_size_of_its_own_until_it_is_dropped() -> None:
    sizes = AdaptiveSizes(2000)
    sizes.of("bad").failed(10)
    assert (sizes.of("bad").now, sizes.of("other").now) == (5, 2000)
    sizes.keep_only({"other"})
    assert sizes.of("bad").now == 2000
