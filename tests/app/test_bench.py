"""`runner bench`: what it asks, what it counts, and what it says of servers that misbehave."""

import asyncio
import json
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from app.bench import roofline
from app.bench.workloads import WorkloadName
from app.cli.main import main
from tests.app.conftest import Served
from tests.app.oddserver import MODEL as OTHER
from tests.app.oddserver import OddServer, Refusal, event, plain, text, usage
from tests.app.scripted import MODEL, answer

pytestmark = pytest.mark.usefixtures("own_home")
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_BUFFER", 1 << 20)


def bench(printed: Printed, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run it; what it printed on stdout is one JSON document."""
    assert main(["bench", "--json", *arguments]) == code, printed.readouterr().err
    return json.loads(printed.readouterr().out)


def workload(done: dict[str, Any], index: int = 0, side: str = "ours") -> dict[str, Any]:
    return done["workloads"][index]["servers"][side]


def roles(body: dict[str, Any]) -> str:
    return "".join(message["role"][0] for message in body["messages"])


def contents(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"]]


async def test_our_own_server_is_measured(served: Served, capsys: Printed) -> None:
    served.host.script = answer("Hello", " there", " you")
    url, sizes = served.url + "/v1", ["--streams", "3", "--rounds", "2"]
    done = await asyncio.to_thread(
        bench, capsys, MODEL, "--base-url", url, "--workload", "streams", *sizes
    )
    assert len(served.host.requests) == 1 + 2 * 3
    found = workload(done)["median"]
    assert (found["requests"], found["failed"]) == (6, 0)
    assert (found["prompt_tokens"], found["output_tokens"]) == (15, 9)
    assert found["cached_share"] == 0.6
    assert found["ttft_p50_s"] <= found["ttft_p95_s"]
    assert done["servers"]["ours"]["weight_bytes"] == 1000
    assert done["host_memory"]["buffer_bytes"] == 1 << 20
    assert found["host_memory_utilisation"] > 0
    assert len(workload(done)["rounds"]) == 2


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("single", 1),
        ("streams", 2),
        ("fanout", 2),
        ("conversation", 10),
        ("turns", 9),
        ("edit", 6),
        ("json", 4),
        ("copy", 1),
    ],
)
def test_each_workload_asks_what_it_says(name: str, requests: int, capsys: Printed) -> None:
    def say(body: dict[str, Any]) -> Iterable[bytes]:
        return [*text('{"a": ', "1}"), usage(10, 2), event("[DONE]")]

    with OddServer(say) as server:
        done = bench(
            capsys, "--base-url", server.url, "--workload", name, "--rounds", "1", "--streams", "2"
        )
    assert done["workloads"][0]["name"] == name
    assert done["workloads"][0]["requests_per_round"] == requests == len(server.asked)
    assert workload(done)["median"]["requests"] == requests
    assert {body["model"] for body in server.bodies} == {OTHER}
    assert all(("response_format" in body) == (name == "json") for body in server.asked)


def test_all_workloads_run_without_a_choice_and_the_table_has_a_row_each(capsys: Printed) -> None:
    with OddServer(lambda body: [*text("1", "2"), event("[DONE]")], listed=None) as server:
        arguments = ["--base-url", server.url, "--rounds", "1", "--streams", "1"]
        assert main(["bench", OTHER, *arguments]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines() if line.strip()]
    names = [name.value for name in WorkloadName]
    assert [row[0] for row in rows if row[0] in names] == names
    (single,) = (row for row in rows if row[0] == "single")
    assert single[1:4] == ["1", "0", "-"]  # no usage: no tokens, no rate, no share
    assert single[-5:] == ["-"] * 5
    assert err.count("round 1 of 1") == 8


def test_prompts_repeat_and_a_round_starts_cold(capsys: Printed) -> None:
    runs: list[list[list[str]]] = []
    for salt in ("a", "a", "b"):
        with OddServer() as server:
            options = ["--workload", "single", "--rounds", "2", "--salt", salt]
            bench(capsys, "--base-url", server.url, *options)
        runs.append([contents(body) for body in server.asked])
    again, twice, other = runs
    assert again == twice
    heads = {tuple(head) for run in (again, other) for head, _ in run}
    assert len(heads) == 4  # the system message starts differently in each round and run
    assert len({question for run in (again, other) for _, question in run}) == 1


def test_a_fanout_shares_its_prefix_and_streams_share_nothing(capsys: Printed) -> None:
    with OddServer() as server:
        for name in ("fanout", "streams"):
            sizes = ["--rounds", "1", "--streams", "3", "--prompt-tokens", "50"]
            bench(capsys, "--base-url", server.url, "--workload", name, *sizes)
    fanout, streams = server.asked[:3], server.asked[3:]
    assert len({contents(body)[0] for body in fanout}) == 1
    assert len({contents(body)[1].partition("\n")[0] for body in fanout}) == 1
    assert len(contents(fanout[0])[1].partition("\n")[0].split()) == 50
    assert len({contents(body)[1] for body in fanout}) == 3
    assert len({tuple(contents(body)[0].split()[:4]) for body in streams}) == 3


def test_conversations_grow_by_what_was_answered(capsys: Printed) -> None:
    with OddServer() as server:
        bench(capsys, "--base-url", server.url, "--workload", "conversation", "--rounds", "1")
        grown = [roles(body) for body in server.asked]
        assert grown == ["s" + "ua" * turn + "u" for turn in range(10)]
        assert contents(server.asked[-1])[2::2] == ["one two"] * 9
        server.bodies.clear()
        bench(capsys, "--base-url", server.url, "--workload", "edit", "--rounds", "1")
    asked = server.asked
    assert [roles(body) for body in asked] == ["su", "suau", "suauau", "suau", "su", "su"]
    assert contents(asked[3])[:3] == contents(asked[1])[:3]
    assert contents(asked[3])[3] != contents(asked[1])[3]
    first, retried = contents(asked[0])[1], contents(asked[4])[1]
    assert first != retried
    same = next(at for at, (a, b) in enumerate(zip(first, retried, strict=False)) if a != b)
    assert same > 0.4 * len(first)
    assert contents(asked[5]) == contents(asked[0])


def test_streams_are_at_once(capsys: Printed) -> None:
    gate = threading.Barrier(3, timeout=20)

    def wait_for_all(body: dict[str, Any]) -> Iterable[bytes]:
        if "Say hello." not in json.dumps(body):
            gate.wait()
        return plain(body)

    with OddServer(wait_for_all) as server:
        options = ["--workload", "streams", "--rounds", "2", "--streams", "3"]
        done = bench(capsys, "--base-url", server.url, *options)
    assert workload(done)["median"]["failed"] == 0


def test_taking_turns_is_one_at_a_time_and_in_order(capsys: Printed) -> None:
    running, most = 0, 0

    def count(body: dict[str, Any]) -> Iterable[bytes]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        *most_of_it, last = plain(body)
        yield from most_of_it
        running -= 1  # before the end: at that the client asks on
        yield last

    with OddServer(count) as server:
        options = ["--workload", "turns", "--rounds", "1", "--streams", "2"]
        bench(capsys, "--base-url", server.url, *options)
    assert most == 1
    assert [roles(body) for body in server.asked] == ["su"] * 3 + ["suau"] * 3 + ["suauau"] * 3
    heads = [contents(body)[0] for body in server.asked]
    assert heads == heads[:3] * 3
    assert len(set(heads)) == 3


def test_two_servers_take_turns_with_the_same_prompts(capsys: Printed) -> None:
    log: list[str] = []
    with (
        OddServer(log=log, name="A") as ours,
        OddServer(lambda body: [*text("1", "2", "3"), usage(10, 4)], log=log, name="B") as theirs,
    ):
        options = ["--workload", "single", "--workload", "copy", "--rounds", "3"]
        keys = ["--api-key", "mine", "--compare-api-key", "yours"]
        both = ["--base-url", ours.url, "--compare", theirs.url]
        done = bench(capsys, *both, *options, *keys)
        assert main(["bench", *both, "--workload", "single", "--rounds", "1"]) == 0
        assert set(theirs.keys) == {"Bearer yours", None}
        assert set(ours.keys) == {"Bearer mine", None}
    table = capsys.readouterr().out
    assert "".join(log[:14]) == "AB" + "ABBAAB" * 2
    assert [body["messages"] for body in ours.asked] == [body["messages"] for body in theirs.asked]
    found = done["workloads"][0]["ratios"]
    assert found["output_tokens"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert found["ttft_p50_s"]["low"] <= found["ttft_p50_s"]["median"]
    assert found["ttft_p50_s"]["median"] <= found["ttft_p50_s"]["high"]
    assert "cached_share" not in found  # they tell of none
    assert workload(done, side="theirs")["median"]["cached_share"] is None
    starts = [line.split()[0] for line in table.splitlines() if line.strip()]
    assert starts[-5:] == ["single", "theirs", "ratio", "Each", "Ratio:"]
    assert table.count("ratio") == 1


def test_our_key_is_for_our_server_alone(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setenv("RUNNER_API_KEY", "s3cret")
    with OddServer() as ours, OddServer() as theirs:
        both = ["--base-url", ours.url, "--compare", theirs.url]
        bench(capsys, *both, "--workload", "single", "--rounds", "1")
    assert set(ours.keys) == {"Bearer s3cret"}
    assert set(theirs.keys) == {None}


BAD: list[tuple[str, Iterable[bytes] | Refusal]] = [
    ("ended the answer before it was complete", text("one", finish=None)),
    ("what is not a chunk of an answer", [*text("one", finish=None), event("<html>")]),
    ("It went away", [*text("one"), event({"error": {"message": "It went away"}})]),
    ("HTTP 503: The queue is full", Refusal(503, '{"error": {"message": "The queue is full"}}')),
    ("HTTP 502.", Refusal(502, "<html>Bad gateway</html>")),
]


@pytest.mark.parametrize(("said", "bad"), BAD, ids=[said for said, _ in BAD])
def test_a_request_that_fails_is_counted_and_told(
    said: str, bad: Iterable[bytes] | Refusal, capsys: Printed
) -> None:
    def once(body: dict[str, Any]) -> Iterable[bytes] | Refusal:
        return bad if len(server.asked) == 1 else plain(body)

    with OddServer(once) as server:
        options = ["--workload", "single", "--rounds", "2"]
        assert main(["bench", "--json", "--base-url", server.url, *options]) == 1
    out, err = capsys.readouterr()
    found = workload(json.loads(out))
    assert [one["failed"] for one in found["rounds"]] == [1, 0]
    assert found["rounds"][0]["ttft_p50_s"] is None
    assert found["rounds"][1]["output_tokens"] == 2
    assert said in found["failures"][0]
    assert said in err
    assert "Traceback" not in err


def test_a_failure_ends_its_conversation_only(capsys: Printed) -> None:
    def third(body: dict[str, Any]) -> Iterable[bytes] | Refusal:
        return Refusal(500, "") if roles(body) == "suauau" else plain(body)

    with OddServer(third) as server:
        options = ["--workload", "conversation", "--workload", "single", "--rounds", "1"]
        done = bench(capsys, "--base-url", server.url, *options, code=1)
    talk, single = (workload(done, index)["median"] for index in range(2))
    assert (talk["requests"], talk["failed"]) == (3, 1)
    assert (single["requests"], single["failed"]) == (1, 0)


def test_a_server_that_ignores_the_schema_fails_that_workload(capsys: Printed) -> None:
    with OddServer() as server:
        options = ["--workload", "json", "--rounds", "1"]
        done = bench(capsys, "--base-url", server.url, *options, code=1)
    (said,) = workload(done)["failures"]
    assert "what is not JSON" in said


def test_a_template_without_system_messages_gets_none(capsys: Printed) -> None:
    def refuse(body: dict[str, Any]) -> Iterable[bytes] | Refusal:
        if "s" in roles(body):
            return Refusal(400, '{"error": {"message": "System role not supported"}}')
        return plain(body)

    with OddServer(refuse) as ours, OddServer() as theirs:
        both = ["--base-url", ours.url, "--compare", theirs.url]
        bench(capsys, *both, "--workload", "single", "--rounds", "2")
    assert {roles(body) for body in (*ours.asked, *theirs.asked)} == {"u"}
    assert [body["messages"] for body in ours.asked] == [body["messages"] for body in theirs.asked]
    assert contents(ours.asked[0]) != contents(ours.asked[1])


def test_thoughts_are_tokens_and_lumps_are_spread(capsys: Printed) -> None:
    def think(body: dict[str, Any]) -> Iterable[bytes]:
        thought = event({"choices": [{"delta": {"reasoning_content": "hm", "content": None}}]})
        return [event({"choices": [{"delta": {"content": ""}}]}), thought, *text("a"), usage(9, 8)]

    with OddServer(think) as server:
        targets = ["--ttft-target", "60", "--tpot-target", "60"]
        options = ["--workload", "single", "--rounds", "1", *targets]
        found = workload(bench(capsys, "--base-url", server.url, *options))["median"]
        late = ["--workload", "single", "--rounds", "1", "--ttft-target", "0", "--tpot-target", "0"]
        none = workload(bench(capsys, "--base-url", server.url, *late))["median"]
    assert (found["output_tokens"], found["goodput"], none["goodput"]) == (8, 1.0, 0.0)
    assert found["tpot_p50_s"] >= 0
    assert found["cached_share"] is None


def test_llama_server_tells_its_weights_under_another_name(capsys: Printed) -> None:
    with OddServer(listed=({"id": "x.gguf", "meta": {"size": 12_000}},)) as server:
        options = ["--base-url", server.url, "--workload", "single", "--rounds", "1"]
        done = bench(capsys, "any-name", *options)
    assert done["servers"]["ours"]["weight_bytes"] == 12_000
    assert {body["model"] for body in server.bodies} == {"any-name"}
    memory = done["host_memory"]
    best = max(memory["read_bytes_per_s"], memory["copy_bytes_per_s"])
    assert done["servers"]["ours"]["host_memory_roofline_tokens_per_s"] == best / 12_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no model is named"),
        (["nope"], "nope"),
        (["m", "--base-url", "http://127.0.0.1:9"], "No server answers"),
        (["--base-url", "http://127.0.0.1:9"], "No server answers"),
        (["--base-url", "nonsense"], "not the address of a server"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    arguments: list[str], said: str, capsys: Printed
) -> None:
    assert main(["bench", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = (line for line in err.splitlines() if not line.startswith("bench: "))
    assert line.startswith("error: ")
    assert said in line


def test_a_model_has_to_be_named_where_there_are_several(capsys: Printed) -> None:
    listed = ({"id": "one"}, {"id": "two"})
    with OddServer(listed=listed) as several, OddServer(listed=({"id": "two"},)) as alone:
        assert main(["bench", "--base-url", several.url]) == 1
        assert "it lists one, two. Name one" in capsys.readouterr().err
        options = ["--workload", "single", "--rounds", "1"]
        bench(capsys, "--base-url", alone.url, "--compare", several.url, *options)
        assert several.asked[0]["model"] == "two"  # as on the other
        several.listed = ({"id": "one", "state": "ready"}, {"id": "two", "state": "absent"})
        bench(capsys, "--base-url", several.url, *options)
        assert several.asked[-1]["model"] == "one"  # what is loaded


@pytest.mark.parametrize(
    "arguments", [["--workload", "flying"], ["--rounds", "0"], ["--ttft-target", "nan"]]
)
def test_a_wrong_option_is_2(arguments: list[str], capsys: Printed) -> None:
    assert main(["bench", "m", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err
