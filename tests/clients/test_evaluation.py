"""lm-evaluation-harness scores texts through plain completions: echo, logprobs, token ids."""

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

from tests.app.test_real_model import MODEL, Served

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def evaluated(starter: Served) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        model=MODEL,
        base_url=f"{starter.url}/v1/completions",
        tokenizer_backend="remote",
        num_concurrent=2,
        max_retries=1,
    )


def instances(kind: str, *arguments: tuple[object, ...]) -> list[Instance]:
    return [Instance(kind, {}, each, at) for at, each in enumerate(arguments)]


def test_a_likely_ending_scores_higher_and_is_told_to_be_greedy(
    evaluated: LocalCompletionsAPI,
) -> None:
    endings = [" Paris", " banana"]
    asked = instances("loglikelihood", *((PROMPT, ending) for ending in endings))
    paris, banana = evaluated.loglikelihood(asked)
    assert paris[0] > -1 > -8 > banana[0]
    assert (paris[1], banana[1]) == (True, False)
    assert evaluated.loglikelihood(asked) == [paris, banana], "the same to the last bit"


def test_a_whole_text_is_scored(evaluated: LocalCompletionsAPI) -> None:
    texts = ("Once upon a time there was a fox.", "Fox a was there time a upon once.")
    plain, jumbled = evaluated.loglikelihood_rolling(
        instances("loglikelihood_rolling", *((text,) for text in texts))
    )
    assert 0 > plain > jumbled


def test_an_answer_ends_where_the_task_says(
    evaluated: LocalCompletionsAPI,
) -> None:
    how = {"until": [", Fri"], "max_gen_toks": 16, "temperature": 0}
    asked = instances("generate_until", ("The days: Monday, Tuesday,", how))
    assert evaluated.generate_until(asked) == [" Wednesday, Thursday"]
