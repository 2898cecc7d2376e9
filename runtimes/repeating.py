"""A prompt given back before its answer, with what the model thought of each of its tokens."""

from collections.abc import Sequence

from models.chat import Prompted, RawPrompt, TokenLogprob
from runtimes.messages import Scored, Vocab


class Repeating:
    """Gathers what is heard of a prompt's `tokens`."""

    def __init__(
        self, prompt: RawPrompt, tokens: Sequence[int], vocab: Vocab, *, with_logprobs: bool
    ) -> None:
        self._pieces, self._tokens = vocab.pieces, tokens
        self._with_logprobs = with_logprobs
        self._heard: list[TokenLogprob] = []
        content = prompt.content
        if isinstance(content, str):
            self._text = content
            added = tokens[0] == vocab.bos_id and not content.startswith(vocab.bos_text)
            self._lead = len(vocab.bos_text) if added or not content else 0
        else:
            pieces = (self._pieces[token] for token in tokens)
            self._text, self._lead = b"".join(pieces).decode("utf-8", "replace"), 0

    def hear(self, scored: Scored) -> None:
        """Logprobs of some tokens; those of a prompt that had to be read again replace the first
        ones."""
        pieces = self._pieces
        del self._heard[scored.position - 1 :]
        for at, (logprob, top) in enumerate(scored.tokens, scored.position):
            alternatives = tuple((pieces[token], value) for token, value in top)
            self._heard.append(TokenLogprob(pieces[self._tokens[at]], logprob, alternatives))

    def said(self) -> Prompted:
        """All of it, once the prompt has been read."""
        if not self._with_logprobs:
            return Prompted(self._text)
        first = self._pieces[self._tokens[0]]
        return Prompted(self._text, first, tuple(self._heard), self._lead)
