"""A template is a stranger's program: whatever it does, it ends in time and in one error."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from models import confined
from models.chat import Conversation, Message, Role
from models.confined import ConfinedTemplate
from models.errors import TemplateFailed
from models.rendering import Bounds
from models.templates import ChatTemplate

CPU_S = 0.5
SHORT = Bounds(cpu_s=CPU_S, wall_s=10, memory_bytes=256 << 20)
# Starting a process, on a machine that does other things as well.
SPARE_S = 4.0
FRIENDLY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def said(text: str) -> Conversation:
    return Conversation((Message(Role.USER, text),))


@contextmanager
def running(source: str, bounds: Bounds = SHORT) -> Iterator[ConfinedTemplate]:
    with closing(ConfinedTemplate(source, bounds=bounds)) as template:
        yield template


def on_demand(body: str) -> str:
    """A template that behaves until a message says otherwise."""
    asked = "{% set said = messages[0].content %}{% if said == 'run' %}"
    return asked + body + "{% endif %}{{ said }}"


LOOPS = {
    "one long loop": "{% for i in range(10**9) %}{% endfor %}",
    "loops within loops": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "a list that grows while it is walked": "{% set ns = namespace(l=[1]) %}"
    "{% for a in range(99999) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "a string twice as long each time": "{% set ns = namespace(s='ab') %}"
    "{% for a in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "a string times a number": "{% set n = messages | length * 10**10 %}{{ 'a' * n }}",
    "a constant string": "{{ 'a' * 10**10 }}",
    "a list times a number": "{% set l = [0] * 10**9 %}{{ l | length }}",
    "a large power": "{{ 10 ** (10 ** (messages | length * 9)) }}",
    "a wide column": "{{ 'a'.ljust(10**10) }}{{ 'a'.center(10**10) }}",
    "a wide format": "{{ '%010000000000d' % 5 }}",
    "a wide format method": "{{ '{:>10000000000}'.format('a') }}",
    "a replacement that explodes": "{{ ('a' * 99999).replace('a', 'b' * 9999999) }}",
    "a join": "{{ ('b' * 9999999).join('a' * 99999) }}",
    "an indented text": "{{ ('\\n' * 999999) | indent(99999, blank=true) }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "macros without an end": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}"
    "{% endmacro %}{{ m(99) }}",
    "a very long answer": "{% for a in range(99999) %}{{ 'abcdefgh' * 99999 }}{% endfor %}",
    "a sum over a product": "{{ (range(99999) | batch(2) | list * 99999) | length }}",
    "sorting": "{{ (range(99999) | list * 999) | sort | length }}",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_it_is_stopped_within_its_time(body: str) -> None:
    with running(on_demand(body)) as template:
        started = time.monotonic()
        with pytest.raises(TemplateFailed) as refusal:
            template.render(said("run"))
        assert time.monotonic() - started < CPU_S + SPARE_S
        assert len(refusal.value.message) < 700
        assert refusal.value.param == "messages"
        assert template.render(said("walk")) == "walk"  # others are served as before


def test_it_is_stopped_when_it_runs_away_at_the_first_look() -> None:
    started = time.monotonic()
    with running(LOOPS["loops within loops"]) as template:
        assert time.monotonic() - started < CPU_S + SPARE_S
        started = time.monotonic()
        for _ in range(50):  # and is not tried again
            with pytest.raises(TemplateFailed, match=r"more than 0\.5 s of processor time"):
                template.render(said("hi"))
        assert time.monotonic() - started < CPU_S


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (LOOPS["loops within loops"], r"takes more than 0\.5 s of processor time"),
        (LOOPS["a wide column"], "wants more than 268 MB of memory"),
        (LOOPS["a macro that calls itself"], "recursion"),
        ("{{ raise_exception('no ' ~ said) }}", "refuses these messages: no run"),
    ],
)
def test_what_was_wrong_is_told(body: str, told: str) -> None:
    with running(on_demand(body)) as template, pytest.raises(TemplateFailed, match=told):
        template.render(said("run"))


def test_a_template_that_does_not_parse_is_refused_at_once() -> None:
    with pytest.raises(TemplateFailed, match="does not parse"):
        ConfinedTemplate("{% for %}")


def test_a_prompt_longer_than_any_is_refused() -> None:
    bounds = Bounds(text_bytes=1000)
    with running(FRIENDLY, bounds) as template:
        assert template.render(said("x" * 900))
        with pytest.raises(TemplateFailed, match="a prompt of more than 1 kB"):
            template.render(said("x" * 1001))
        assert template.render(said("x" * 900))


def test_memory_is_bounded_where_the_kernel_does_not_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "kernel_bounds_memory", lambda: False)
    body = "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}"
    body += "{% set ns.l = ns.l + ['abcdefgh' * (a + 999999)] %}{% endfor %}"
    with running(on_demand(body), Bounds(cpu_s=20, memory_bytes=200 << 20)) as template:
        with pytest.raises(TemplateFailed, match="wants more than 210 MB of memory"):
            template.render(said("run"))
        assert template.render(said("walk")) == "walk"


def test_what_makes_no_progress_is_stopped_too() -> None:
    with running(FRIENDLY, Bounds(wall_s=3)) as template:
        template.render(said("hi"))
        os.kill(pid_of(template), 19)  # SIGSTOP
        with pytest.raises(TemplateFailed, match="did not come to an end in 3 s"):
            template.render(said("hi"))
        assert template.render(said("hi")) == "<user>hi<assistant>"


def test_a_process_that_was_killed_is_started_again() -> None:
    with running(FRIENDLY) as template:
        os.kill(pid_of(template), 9)
        with pytest.raises(TemplateFailed, match="ended the process it ran in"):
            template.render(said("hi"))
        assert template.render(said("hi")) == "<user>hi<assistant>"


async def test_the_event_loop_goes_on_meanwhile() -> None:
    late = 0.0

    async def tick() -> None:
        nonlocal late
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - before)

    with running(on_demand(LOOPS["a string twice as long each time"])) as template:
        ticking = asyncio.create_task(tick())
        with pytest.raises(TemplateFailed):
            await template.rendered(said("run"))
        assert await template.rendered(said("walk")) == "walk"
        ticking.cancel()
    assert late < 0.4


async def test_closing_ends_it_at_once() -> None:
    bounds = Bounds(cpu_s=60, wall_s=60)
    template = ConfinedTemplate(on_demand(LOOPS["loops within loops"]), bounds=bounds)
    rendering = asyncio.create_task(template.rendered(said("run")))
    await asyncio.sleep(0.2)
    template.close()
    with pytest.raises(TemplateFailed):
        await asyncio.wait_for(rendering, SPARE_S)


def test_the_text_is_the_same_as_without_the_process() -> None:
    conversation = Conversation(
        (
            Message(Role.SYSTEM, "be brief"),
            Message(Role.USER, "Zürich 🙂\n" * 5000),
            Message(Role.ASSISTANT, "yes", reasoning="hm"),
            Message(Role.USER, "so?"),
        ),
        template_args={"enable_thinking": False, "more": [1, {"a": None}]},
    )
    source = "{{ bos_token }}{{ enable_thinking }}{{ more | tojson }}" + FRIENDLY
    plain = ChatTemplate(source, "<s>", "</s>")
    with closing(ConfinedTemplate(source, "<s>", "</s>")) as template:
        assert template.traits == plain.traits
        assert template.render(conversation) == plain.render(conversation)


def pid_of(template: ConfinedTemplate) -> int:
    pid = template.pid
    assert pid is not None
    return pid
