"""gpt-oss: every message has a header that names its channel, and a tool it may go to."""

from models.dialects.base import Channels, Dialect, Family, Layout

HARMONY = Dialect(
    name="harmony",
    thinking=(),
    channels=Channels(
        start="<|start|>",
        channel="<|channel|>",
        message="<|message|>",
        constrain="<|constrain|>",
        ends=("<|end|>", "<|return|>", "<|call|>"),
        thinking=("analysis",),
        names=("analysis", "commentary", "final"),
        functions="functions.",
    ),
    ends=("<|endoftext|>",),
    layout=Layout(
        head="<|channel|>commentary to=functions.",
        named=" <|constrain|>json<|message|>",
        tail="<|call|>",
    ),
)

FAMILY = Family(HARMONY, signs=(("<|channel|>", "<|message|>"),))
