"""DeepSeek: V3 and R1 fence the arguments, V3.1 does not, V3.2 and V4 write tags (DSML)."""

# ruff: noqa: RUF001 - the family writes its marks with a full-width bar

from dataclasses import replace

from models.dialects.base import Dialect, Family, Layout, NamedCalls, Section, Tags

_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

DEEPSEEK_V3 = Dialect(
    name="deepseek-v3",
    sections=(
        Section(
            open=(_CALLS, "<｜tool_calls_begin｜>"),
            forms=(
                NamedCalls(
                    head=(f"{_CALL}function{_SEP}",),
                    named=("```json",),
                    tail=(f"```{_CALL_END}", f"```\n{_CALL_END}", "```", _CALL_END),
                ),
                NamedCalls(head=(_CALL,), named=(_SEP,), tail=(_CALL_END,)),
            ),
            close=(_CALLS_END, "<｜tool_calls_end｜>"),
        ),
        Section(
            open=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
            forms=(
                NamedCalls(
                    head=('<｜DSML｜invoke name="',),
                    named=('">',),
                    tail=("</｜DSML｜invoke>",),
                    arguments=Tags(
                        open='<｜DSML｜parameter name="',
                        keyed=('" string="false">', '">'),
                        keyed_text=('" string="true">',),
                        close="</｜DSML｜parameter>",
                    ),
                ),
            ),
            close=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
        ),
    ),
    ends=("<｜end▁of▁sentence｜>",),
    layout=Layout(
        begin=_CALLS,
        head=f"{_CALL}function{_SEP}",
        named="\n```json\n",
        tail=f"\n```{_CALL_END}",
        between="\n",
        end=_CALLS_END,
    ),
)

DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek-v3.1",
    layout=Layout(begin=_CALLS, head=_CALL, named=_SEP, tail=_CALL_END, between="", end=_CALLS_END),
)


def _tagged(block: str) -> Layout:
    return Layout(
        begin=f"<｜DSML｜{block}>\n",
        head='<｜DSML｜invoke name="',
        named='">\n',
        tail="</｜DSML｜invoke>\n",
        between="",
        end=f"</｜DSML｜{block}>",
        arguments=Tags(
            open='<｜DSML｜parameter name="',
            keyed=('" string="false">',),
            keyed_text=('" string="true">',),
            close="</｜DSML｜parameter>\n",
        ),
    )


DEEPSEEK_V32 = replace(DEEPSEEK_V3, name="deepseek-v3.2", layout=_tagged("function_calls"))
DEEPSEEK_V4 = replace(DEEPSEEK_V3, name="deepseek-v4", layout=_tagged("tool_calls"))

FAMILIES = (
    Family(DEEPSEEK_V4, signs=(("<｜DSML｜tool_calls>",),)),
    Family(DEEPSEEK_V32, signs=(("｜DSML｜",),)),
    Family(DEEPSEEK_V3, signs=((_SEP, "```json"),)),
    Family(DEEPSEEK_V31, signs=((_SEP,), ("<｜Assistant｜>",))),
)
