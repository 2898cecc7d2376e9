"""Each reply can tell why its prompt was not found further in the cache."""

from models.chat import Miss, MissReason
from runtimes.misses import Misses

PROMPT = list(range(1000))
# A message begins at each of these.
BOUNDARIES = [100, 500]


def test_a_prompt_that_was_found_is_no_miss() -> None:
    assert Misses().explain(PROMPT, BOUNDARIES, 999) is None


def test_the_first_prompt_is_new() -> None:
    assert Misses().explain(PROMPT, BOUNDARIES, 0) == Miss(0, 0, MissReason.NEW)


def test_a_changed_token_is_named_with_its_message() -> None:
    misses = Misses()
    misses.remember(PROMPT)
    changed = [*PROMPT[:600], -1, *PROMPT[601:]]
    assert misses.explain(changed, BOUNDARIES, 600) == Miss(600, 2, MissReason.DIFFERS)
    changed[50] = -1
    assert misses.explain(changed, BOUNDARIES, 50) == Miss(50, 0, MissReason.DIFFERS)


def test_the_nearest_of_the_earlier_prompts_counts() -> None:
    misses = Misses()
    misses.remember([*PROMPT[:200], -1])
    misses.remember([*PROMPT[:700], -1])
    misses.remember([*PROMPT[:300], -1])
    assert misses.explain(PROMPT, BOUNDARIES, 695) == Miss(700, 2, MissReason.DIFFERS)


def test_what_was_there_once_is_gone() -> None:
    misses = Misses()
    misses.remember(PROMPT)
    assert misses.explain(PROMPT, BOUNDARIES, 256) == Miss(256, 1, MissReason.GONE)


def test_only_the_newest_prompts_are_remembered() -> None:
    misses = Misses()
    misses.remember(PROMPT)
    for other in range(100):
        misses.remember([-other - 1])
    assert misses.explain(PROMPT, BOUNDARIES, 0) == Miss(0, 0, MissReason.NEW)
