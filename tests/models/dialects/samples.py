"""What models of each family write, and what it means."""

# ruff: noqa: RUF001 - one family writes its marks with a full-width bar

from dataclasses import dataclass

from models.dialects.base import Dialect
from models.dialects.command import COMMAND
from models.dialects.deepseek import DEEPSEEK_V3, DEEPSEEK_V31, DEEPSEEK_V32
from models.dialects.gemma import FUNCTION_GEMMA, GEMMA, GEMMA_4
from models.dialects.generic import GENERIC
from models.dialects.glm import GLM
from models.dialects.granite import GRANITE_3, GRANITE_4, GRANITE_33
from models.dialects.harmony import HARMONY
from models.dialects.hermes import HERMES
from models.dialects.kimi import KIMI
from models.dialects.lists import LFM, NEMOTRON, OLMO
from models.dialects.llama import LLAMA_JSON, LLAMA_PYTHON
from models.dialects.minimax import MINIMAX
from models.dialects.mistral import MISTRAL_LIST, MISTRAL_NAMED
from models.dialects.phi import PHI
from models.dialects.qwen import QWEN_CODER
from models.dialects.seed import SEED
from tests.models.dialects.reading import Called, Said, Spoken, Thought

PARIS = '{"city": "Paris"}'


@dataclass(frozen=True)
class Sample:
    """A text and what it means."""

    about: str
    dialect: Dialect
    text: str
    means: tuple[Spoken, ...]
    prompt_end: str = ""


def weather(arguments: str = PARIS, call_id: str = "id-0") -> Called:
    return Called("get_weather", arguments, call_id)


def now(call_id: str = "id-1") -> Called:
    return Called("now", "{}", call_id)


HERMES_SAMPLES = (
    Sample(
        "one call after words",
        HERMES,
        "Let me look.\n\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>',
        (Said("Let me look."), weather()),
    ),
    Sample(
        "two calls at once",
        HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (weather(), now()),
    ),
    Sample(
        "reasoning, an answer, and no call",
        HERMES,
        "<think>\nEasy.\n</think>\n\nIt rains.",
        (Thought("Easy."), Said("It rains.")),
    ),
    Sample(
        "reasoning that the prompt opened, then a call",
        HERMES,
        'Need a tool.\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (Thought("Need a tool."), now("id-0")),
        prompt_end="<|im_start|>assistant\n<think>\n",
    ),
    Sample(
        "a call ends reasoning that was never closed",
        HERMES,
        '<think>\nI call it.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (Thought("I call it."), now("id-0")),
    ),
    Sample(
        "a draft with another name in the reasoning is no call",
        HERMES,
        '<think>Say <tool_call>{"name": "f", "arguments": {}}</tool_call>?</think>No.',
        (Thought('Say <tool_call>{"name": "f", "arguments": {}}</tool_call>?'), Said("No.")),
    ),
    Sample(
        "a string that contains the end mark",
        HERMES,
        '<tool_call>{"name": "get_weather", "arguments": {"city": "a</tool_call>b\\"}"}}'
        "</tool_call>",
        (weather('{"city": "a</tool_call>b\\"}"}'),),
    ),
    Sample(
        "arguments before the name, and as a string that spells them",
        HERMES,
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>'
        '<tool_call>{"name": "now", "arguments": "{}"}</tool_call>',
        (weather(), now()),
    ),
    Sample(
        "no arguments at all, and null",
        HERMES,
        '<tool_call>{"name": "now"}</tool_call><tool_call>'
        '{"name": "now", "arguments": null}</tool_call>',
        (now("id-0"), now("id-1")),
    ),
    Sample(
        "a brace too few and a brace too many",
        HERMES,
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}</tool_call>'
        '<tool_call>{"name": "now", "arguments": {}}}</tool_call>',
        (weather(), now()),
    ),
    Sample(
        "line breaks, lone backslashes and Python's words become JSON",
        HERMES,
        '<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb\\d", "metric": True}}'
        "</tool_call>",
        (weather('{"city": "a\\nb\\\\d", "metric": true}'),),
    ),
    Sample(
        "a tool that is not on offer is still a call within marks",
        HERMES,
        '<tool_call>{"name": "launch", "arguments": {"at": 5}}</tool_call>',
        (Called("launch", '{"at": 5}'),),
    ),
    Sample(
        "a bare object that names a tool",
        HERMES,
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        (weather(),),
    ),
    Sample(
        "a bare object that names somebody",
        HERMES,
        '{"name": "Ada", "arguments": {"city": "Paris"}} ',
        (Said('{"name": "Ada", "arguments": {"city": "Paris"}} '),),
    ),
    Sample(
        "a fence with a call, and one with other JSON",
        HERMES,
        '```json\n{"name": "now", "arguments": {}}\n```\n```json\n{"name": "Ada"}\n```',
        (now("id-0"), Said('\n```json\n{"name": "Ada"}\n```')),
    ),
    Sample(
        "text about the marks",
        HERMES,
        "Use <tool_call>, then </tool_call>. Not <think>.",
        (Said("Use <tool_call>, then </tool_call>. Not <think>."),),
    ),
    Sample(
        "words after a call",
        HERMES,
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n Done. ',
        (now("id-0"), Said("\n Done. ")),
    ),
)

QWEN_SAMPLES = (
    Sample(
        "parameters with the types of the schema",
        QWEN_CODER,
        "Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n"
        '<parameter=tags>\n["a", "b"]\n</parameter>\n</function>\n</tool_call>',
        (
            Said("Sure."),
            weather('{"city": "42", "days": 3, "metric": true, "tags": ["a", "b"]}'),
        ),
    ),
    Sample(
        "a file with quotes, empty lines and tags of its own",
        QWEN_CODER,
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.xml\n</parameter>\n"
        '<parameter=content>\n\n<parameter=x>"1"</parameter> \\n\n</tool_call>\n\n</parameter>\n'
        "<parameter=mode>\nnull\n</parameter>\n</function>\n</tool_call>",
        (
            Called(
                "write_file",
                '{"path": "a.xml", "content": "\\n<parameter=x>\\"1\\"</parameter> \\\\n\\n'
                '</tool_call>\\n", "mode": null}',
            ),
        ),
    ),
    Sample(
        "no parameters, and two calls",
        QWEN_CODER,
        "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>"
        "\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        (now("id-0"), weather(call_id="id-1")),
    ),
    Sample(
        "the outer tag forgotten",
        QWEN_CODER,
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        (weather(),),
    ),
    Sample(
        "an object in Python's writing, for a parameter nobody declared",
        QWEN_CODER,
        "<tool_call><function=now><parameter=x>{'a': 1}</parameter>"
        '<parameter=y>{"a": 1}</parameter></function></tool_call>',
        (Called("now", '{"x": "{\'a\': 1}", "y": {"a": 1}}'),),
    ),
)

LLAMA_SAMPLES = (
    Sample(
        "a bare object",
        LLAMA_JSON,
        '{"name": "get_weather", "parameters": {"city": "Paris"}}<|eot_id|>',
        (weather(),),
    ),
    Sample(
        "after the mark, and two of them",
        LLAMA_JSON,
        '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": '
        '{"city": "Paris"}}; {"name": "now", "parameters": {}}<|eom_id|>',
        (weather(), now()),
    ),
    Sample(
        "the mark with code for an interpreter",
        LLAMA_JSON,
        "<|python_tag|>print(1)",
        (Said("<|python_tag|>print(1)"),),
    ),
    Sample(
        "a built-in tool's call",
        LLAMA_JSON,
        '<|python_tag|>get_weather.call(city="Paris")',
        (weather(),),
    ),
    Sample(
        "an object within a function tag",
        LLAMA_JSON,
        '<function=get_weather>{"city": "Paris"}</function>',
        (weather(),),
    ),
    Sample(
        "an answer in JSON",
        LLAMA_JSON,
        '{"city": "Paris", "parameters": {}}',
        (Said('{"city": "Paris", "parameters": {}}'),),
    ),
    Sample(
        "a list of calls as in Python",
        LLAMA_PYTHON,
        '[get_weather(city=\'It\\\'s (x)]\', days=-2, metric=True, tags=["a", "b"]), now()]',
        (weather('{"city": "It\'s (x)]", "days": -2, "metric": true, "tags": ["a", "b"]}'), now()),
    ),
    Sample(
        "arguments by position",
        LLAMA_PYTHON,
        '[get_weather("Paris", 3)]',
        (weather('{"city": "Paris", "days": 3}'),),
    ),
    Sample(
        "a list that is none of calls",
        LLAMA_PYTHON,
        "[sqrt(4), 1] and [get_weather(city=name)]",
        (Said("[sqrt(4), 1] and [get_weather(city=name)]"),),
    ),
)

MISTRAL_SAMPLES = (
    Sample(
        "a list of calls",
        MISTRAL_LIST,
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"},'
        ' {"name": "now", "arguments": {}}]</s>',
        (weather(), now()),
    ),
    Sample(
        "a name and its arguments",
        MISTRAL_NAMED,
        'Ok. [TOOL_CALLS]get_weather[ARGS]{"city": "[ARGS]"}[TOOL_CALLS]now[ARGS]{}</s>',
        (Said("Ok."), weather('{"city": "[ARGS]"}'), now()),
    ),
    Sample(
        "the model's own id",
        MISTRAL_NAMED,
        '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Paris"}',
        (weather(call_id="a1B2c3D4e"),),
    ),
    Sample("no mark between", MISTRAL_NAMED, "[TOOL_CALLS]now{}", (now("id-0"),)),
    Sample(
        "reasoning between marks",
        MISTRAL_NAMED,
        "[THINK]Hm [x].[/THINK]Yes.",
        (Thought("Hm [x]."), Said("Yes.")),
    ),
)

DEEPSEEK_SAMPLES = (
    Sample(
        "fenced arguments",
        DEEPSEEK_V3,
        "Now.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now'
        "\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        (Said("Now."), weather(), now()),
    ),
    Sample(
        "plain arguments",
        DEEPSEEK_V31,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        (weather(), now()),
    ),
    Sample(
        "tags that say what is a string",
        DEEPSEEK_V32,
        "Hm.</think>\n\n<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        (Thought("Hm."), weather('{"city": "Paris", "days": 2}'), now()),
        prompt_end="<｜Assistant｜><think>",
    ),
    Sample(
        "an object where tags should be",
        DEEPSEEK_V32,
        '<｜DSML｜function_calls><｜DSML｜invoke name="get_weather">{"city": "Paris"}'
        "</｜DSML｜invoke></｜DSML｜function_calls>",
        (weather(),),
    ),
)

KIMI_SAMPLES = (
    Sample(
        "ids of the model's own, that end its reasoning",
        KIMI,
        "<think>Both.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:3"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>'
        "functions.now:4<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
        "<|im_end|>",
        (
            Thought("Both."),
            weather(call_id="functions.get_weather:3"),
            now("functions.now:4"),
        ),
    ),
    Sample(
        "a bare name gets a number",
        KIMI,
        "<|tool_calls_section_begin|><|tool_call_begin|>now<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        (now("functions.now:0"),),
    ),
)

GLM_SAMPLES = (
    Sample(
        "pairs of tags",
        GLM,
        "<think>Ok</think>\nSure.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
        "</tool_call>\n<tool_call>now\n</tool_call><|observation|>",
        (Thought("Ok"), Said("Sure."), weather('{"city": "Paris", "days": 2}'), now()),
    ),
    Sample(
        "without line breaks",
        GLM,
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        (weather(),),
    ),
)

MINIMAX_SAMPLES = (
    Sample(
        "invocations",
        MINIMAX,
        'I see.\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n<parameter name="tags">["a"]</parameter>\n'
        '</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>[e~[',
        (Thought("I see."), weather('{"city": "Paris", "tags": ["a"]}'), now()),
        prompt_end="]~b]ai\n<think>\n",
    ),
)

GEMMA_SAMPLES = (
    Sample(
        "a fence with Python's calls",
        GEMMA,
        'I will.\n```tool_code\nget_weather(city="Paris")\nnow()\n```<end_of_turn>',
        (Said("I will."), weather(), now()),
    ),
    Sample(
        "a fence with JSON",
        GEMMA,
        '```json\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n```',
        (weather(),),
    ),
    Sample(
        "a fence with other code",
        GEMMA,
        "```tool_code\nprint(1)\n```\n```json\n[1]\n```",
        (Said("```tool_code\nprint(1)\n```\n```json\n[1]\n```"),),
    ),
    Sample(
        "braces",
        FUNCTION_GEMMA,
        '<start_function_call>call:get_weather{city:<escape>Pa}ri"s<escape>,days:2,tags:'
        "[<escape>a<escape>],metric:true}<end_function_call><start_function_call>call:now{}"
        "<end_function_call><start_function_response>",
        (
            weather('{"city": "Pa}ri\\"s", "days": 2, "tags": ["a"], "metric": true}'),
            now(),
        ),
    ),
    Sample(
        "braces with nested values",
        GEMMA_4,
        '<|channel>thought\nHm.<channel|><|tool_call>call:write_file{path:<|"|>a<|"|>,'
        'content:<|"|>{x: "1"}\n<|"|>,extra:{a:[1,{b:<|"|><|"|>}],c:null}}<tool_call|>',
        (
            Thought("Hm."),
            Called(
                "write_file",
                '{"path": "a", "content": "{x: \\"1\\"}\\n", '
                '"extra": {"a": [1, {"b": ""}], "c": null}}',
            ),
        ),
    ),
)

_ASSISTANT = "<|start|>assistant"
HARMONY_SAMPLES = (
    Sample(
        "reasoning, then the answer",
        HARMONY,
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>"
        "It rains.<|return|>",
        (Thought("Easy."), Said("It rains.")),
        prompt_end=_ASSISTANT,
    ),
    Sample(
        "reasoning, a preamble and two calls",
        HARMONY,
        "<|channel|>analysis<|message|>Both.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        '<|constrain|>json<|message|>{"city": "Paris"}<|call|><|start|>assistant to=functions.now'
        "<|channel|>commentary json<|message|>{}<|call|>",
        (Thought("Both."), Said("I look."), weather(), now()),
        prompt_end=_ASSISTANT,
    ),
    Sample(
        "a recipient in the role, a doubled header, and junk",
        HARMONY,
        " to=functions.get_weather<|channel|>commentary<|channel|>commentary code<|message|>"
        '{"city": "Paris"}<|call|>',
        (weather(),),
        prompt_end=_ASSISTANT,
    ),
    Sample(
        "a header that the prompt has written whole",
        HARMONY,
        "Yes.<|return|>",
        (Said("Yes."),),
        prompt_end=_ASSISTANT + "<|channel|>final<|message|>",
    ),
    Sample("no header at all", HARMONY, "Hi there.", (Said("Hi there."),), prompt_end=_ASSISTANT),
    Sample(
        "a header cut off",
        HARMONY,
        "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>fin",
        (Thought("So."),),
        prompt_end=_ASSISTANT,
    ),
)

OTHER_SAMPLES = (
    Sample(
        "a list after a mark",
        GRANITE_3,
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "now", "arguments": {}}]<|end_of_text|>',
        (weather(), now()),
    ),
    Sample(
        "reasoning in words",
        GRANITE_3,
        "Here is my thought process:\n\nHm.\n\nHere is my response:\n\nYes.",
        (Thought("Hm."), Said("Yes.")),
    ),
    Sample(
        "reasoning and an answer in tags",
        GRANITE_33,
        "<think>Hm.</think><response>Yes.</response>",
        (Thought("Hm."), Said("Yes.")),
    ),
    Sample(
        "as Hermes",
        GRANITE_4,
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (now("id-0"),),
    ),
    Sample(
        "marks on both sides",
        PHI,
        '<|tool_call|>{"name": "get_weather", "arguments": {"city": "Paris"}}<|/tool_call|>'
        '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|><|end|>',
        (weather(), now()),
    ),
    Sample(
        "a word and a list",
        PHI,
        'functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        (weather(),),
    ),
    Sample("the word alone", PHI, "import functools [x]", (Said("import functools [x]"),)),
    Sample(
        "a plan and actions",
        COMMAND,
        "<|START_THINKING|>I will.<|END_THINKING|><|START_ACTION|>[\n    "
        '{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>'
        "<|END_OF_TURN_TOKEN|>",
        (Thought("I will."), weather(), now()),
    ),
    Sample(
        "an answer between marks",
        COMMAND,
        "<|START_RESPONSE|>Yes.<|END_RESPONSE|>",
        (Said("Yes."),),
    ),
    Sample(
        "a fenced action",
        COMMAND,
        'Action: ```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": '
        '{"city": "Paris"}\n    }\n]\n```',
        (weather(),),
    ),
    Sample(
        "functions within marks of its own",
        SEED,
        "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call><seed:eos>",
        (Thought("Hm."), weather()),
    ),
    Sample(
        "reasoning that a budget of nothing has opened twice",
        SEED,
        "No.</seed:cot_budget_reflect></seed:think>Yes.",
        (Thought("No.</seed:cot_budget_reflect>"), Said("Yes.")),
        prompt_end="<seed:bos>assistant\n<seed:think><seed:cot_budget_reflect>",
    ),
    Sample(
        "a list in tags",
        NEMOTRON,
        '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>',
        (weather(),),
    ),
    Sample(
        "Python's calls between marks",
        LFM,
        "<|tool_call_start|>[get_weather(city='Paris'), now()]<|tool_call_end|>Looking.",
        (weather(), now(), Said("Looking.")),
    ),
    Sample(
        "Python's calls on lines",
        OLMO,
        '<function_calls>\nget_weather(city="Paris")\nnow()\n</function_calls>',
        (weather(), now()),
    ),
    Sample(
        "JSON in a fence",
        GENERIC,
        '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
        (weather(),),
    ),
    Sample(
        "JSON as interfaces write it",
        GENERIC,
        '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}',
        (weather(),),
    ),
)

SAMPLES = (
    *HERMES_SAMPLES,
    *QWEN_SAMPLES,
    *LLAMA_SAMPLES,
    *MISTRAL_SAMPLES,
    *DEEPSEEK_SAMPLES,
    *KIMI_SAMPLES,
    *GLM_SAMPLES,
    *MINIMAX_SAMPLES,
    *GEMMA_SAMPLES,
    *HARMONY_SAMPLES,
    *OTHER_SAMPLES,
)
