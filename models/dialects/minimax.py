"""MiniMax M2: invocations with a tag for each parameter."""

from models.dialects.base import Dialect, Family, Layout, NamedCalls, Section, Tags

MINIMAX = Dialect(
    name="minimax",
    sections=(
        Section(
            open=("<minimax:tool_call>",),
            forms=(
                NamedCalls(
                    head=('<invoke name="',),
                    named=('">',),
                    tail=("</invoke>",),
                    arguments=Tags(open='<parameter name="', keyed=('">',), close="</parameter>"),
                ),
            ),
            close=("</minimax:tool_call>",),
        ),
    ),
    ends=("[e~[",),
    layout=Layout(
        begin="<minimax:tool_call>\n",
        head='<invoke name="',
        named='">\n',
        tail="</invoke>\n",
        between="",
        end="</minimax:tool_call>",
        arguments=Tags(open='<parameter name="', keyed=('">',), close="</parameter>\n"),
    ),
)

FAMILY = Family(MINIMAX, signs=(("<minimax:tool_call>",),))
