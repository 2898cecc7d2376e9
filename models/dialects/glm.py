"""GLM 4: the name, then a pair of tags for each argument."""

from models.dialects.base import Dialect, Family, JsonCalls, Layout, NamedCalls, Section, Tags

GLM = Dialect(
    name="glm",
    sections=(
        Section(
            open=("<tool_call>",),
            forms=(
                NamedCalls(
                    head=("",),
                    named=("",),
                    arguments=Tags(
                        open="<arg_key>",
                        keyed=("</arg_key>\n<arg_value>", "</arg_key><arg_value>"),
                        close="</arg_value>",
                    ),
                ),
                JsonCalls(),
            ),
            close=("</tool_call>",),
        ),
    ),
    ends=("<|user|>", "<|observation|>", "<|endoftext|>"),
    layout=Layout(
        begin="<tool_call>",
        head="",
        named="\n",
        between="</tool_call>\n<tool_call>",
        end="</tool_call>",
        arguments=Tags(
            open="<arg_key>", keyed=("</arg_key>\n<arg_value>",), close="</arg_value>\n"
        ),
    ),
)

FAMILY = Family(GLM, signs=(("<arg_key>",), ("[gMASK]",)))
