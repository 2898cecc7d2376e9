"""Seed-OSS: Qwen3-Coder's functions within marks of its own."""

from models.dialects.base import Dialect, Family, Layout, Section, Tags, Thinking
from models.dialects.hermes import FUNCTION

_END = "</seed:think>"

SEED = Dialect(
    name="seed",
    sections=(
        Section(open=("<seed:tool_call>",), forms=(FUNCTION,), close=("</seed:tool_call>",)),
    ),
    thinking=(
        Thinking("<seed:think>", _END, special=True),
        # A budget of nothing: the prompt opens both, and the model says that it will not think.
        Thinking("<seed:think><seed:cot_budget_reflect>", _END, special=True),
    ),
    ends=("<seed:eos>",),
    layout=Layout(
        begin="<seed:tool_call>\n",
        head="<function=",
        named=">\n",
        tail="</function>\n",
        between="</seed:tool_call>\n<seed:tool_call>\n",
        end="</seed:tool_call>",
        arguments=Tags(open="<parameter=", keyed=(">",), close="</parameter>\n"),
    ),
)

FAMILY = Family(SEED, signs=(("<seed:tool_call>",), ("<seed:think>",)))
