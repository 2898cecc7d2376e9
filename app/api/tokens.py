"""Text to tokens and back, in vLLM's words and llama-server's: `/tokenize`, `/detokenize`,
`/tokenizer_info`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from pydantic import Field

from app.api.body import Body, Reads, Whole
from app.api.conversation import ChatMessage, ChatTool, conversation_of
from models.chat import Conversation, Request
from models.errors import RequestInvalid
from runtimes.base import LoadState, ModelHost, Tokenizer

router = APIRouter()

# Longer texts would keep the prompts of others waiting, which are tokenized by the same thread.
MAX_TEXT = 8 << 20


class TokenizeFields(Body):
    """vLLM's `prompt` or `messages`, or llama-server's `content`."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    messages: list[ChatMessage] | None = None
    tools: list[ChatTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    content: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeFields(Body):
    """Tokens of one text."""

    model: str | None = None
    tokens: list[Annotated[Whole, Field(ge=0, lt=2**31)]]


@router.post("/tokenize")
async def tokenize(
    http: HttpRequest, body: Annotated[TokenizeFields, Depends(Reads(TokenizeFields))]
) -> dict[str, Any]:
    """The tokens of a text, or of a conversation as its prompt."""
    given = [f for f in ("prompt", "messages", "content") if getattr(body, f) is not None]
    if len(given) != 1:
        raise RequestInvalid("Send one of prompt, messages and content.", "prompt")
    host: ModelHost = http.app.state.host
    model = http.state.model = _meant(host, body.model)
    tokens: tuple[int, ...] = ()
    if body.messages is not None:
        # As a request would, with all that happens to a conversation before.
        tokens = await host.tokens(Request(model, _conversation(body)))
    async with host.tokenizer(model) as tokenizer:
        if body.content is not None:
            return await _by_llama_server(tokenizer, body.content, body)
        if body.prompt is not None:
            wanted = body.add_special_tokens is None or body.add_special_tokens
            tokens = await _encoded(tokenizer, body.prompt, "prompt", wanted, True)
        answer: dict[str, Any] = {
            "count": len(tokens),
            "max_model_len": tokenizer.tokenizer_info.context,
            "tokens": tokens,
        }
        if body.return_token_strs:
            answer["token_strs"] = [_text(piece) for piece in tokenizer.pieces(tokens)]
        return answer


@router.post("/detokenize")
async def detokenize(
    http: HttpRequest, body: Annotated[DetokenizeFields, Depends(Reads(DetokenizeFields))]
) -> dict[str, str]:
    """The text of tokens, under the names that both kinds of client look for."""
    host: ModelHost = http.app.state.host
    model = http.state.model = _meant(host, body.model)
    async with host.tokenizer(model) as tokenizer:
        text = _text(b"".join(tokenizer.pieces(body.tokens)))
    return {"prompt": text, "content": text}


@router.get("/tokenizer_info")
async def tokenizer_info(http: HttpRequest, model: str | None = None) -> dict[str, Any]:
    """What a client needs to know of a tokenizer that it cannot load itself."""
    host: ModelHost = http.app.state.host
    async with host.tokenizer(_meant(host, model)) as tokenizer:
        info = tokenizer.tokenizer_info
    return {
        "bos_token": info.bos or None,
        "eos_token": info.eos or None,
        "add_bos_token": info.adds_bos,
        "vocab_size": info.size,
        "model_max_length": info.context,
        "chat_template": info.chat_template,
    }


def _meant(host: ModelHost, name: str | None) -> str:
    """The model asked for, else the only one that is loaded, else the only one there is."""
    if name:
        return name
    infos = host.models()
    loaded = [info for info in infos if info.state is LoadState.READY] or infos
    if len(loaded) != 1:
        raise RequestInvalid(
            f"model is required, for {len(loaded)} models could be meant (GET /v1/models).", "model"
        )
    return loaded[0].id


def _conversation(body: TokenizeFields) -> Conversation:
    if body.add_generation_prompt is False:
        path = "add_generation_prompt"
        raise RequestInvalid(f"{path} is always true: prompts end where the answer begins.", path)
    return conversation_of(body.messages or [], body.tools or [], body.chat_template_kwargs or {})


async def _by_llama_server(
    tokenizer: Tokenizer, content: str, body: TokenizeFields
) -> dict[str, Any]:
    markup = body.parse_special is None or body.parse_special
    tokens = await _encoded(tokenizer, content, "content", bool(body.add_special), markup)
    if not body.with_pieces:
        return {"tokens": tokens}
    pairs = zip(tokens, tokenizer.pieces(tokens), strict=True)
    return {"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in pairs]}


async def _encoded(
    tokenizer: Tokenizer, text: str, param: str, add_special: bool, parse_special: bool
) -> tuple[int, ...]:
    if len(text) > MAX_TEXT:
        raise RequestInvalid(f"{param} may have {MAX_TEXT} characters at most.", param)
    return await tokenizer.encode(text, add_special=add_special, parse_special=parse_special)


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def _piece(piece: bytes) -> str | list[int]:
    """As llama-server: bytes where they are no whole characters."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)
