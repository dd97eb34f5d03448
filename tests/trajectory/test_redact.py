"""Redaction finds what is planted, leaves orders, amounts and dates alone, keeps JSON JSON, and is idempotent."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest

from flywheel.records import Blob, Fragment, Outcome, Step, ToolCall, Trajectory
from flywheel.trajectory.placeholders import numbered
from flywheel.trajectory.redact import Redaction, Redactor

KEY = b"test key"
REDACTION = Redaction(key=KEY)
PLANTED = [
    ("EMAIL", "jane.doe+orders@mail.example.co.uk"),
    ("EMAIL", "jörg@exämple.de"),
    ("CARD", "4111 1111 1111 1111"),
    ("CARD", "5555-5555-5555-4444"),
    ("CARD", "4111111111111111"),
    ("CARD", "3782 822463 10005"),
    ("CARD", "6011000990139424"),
    ("IBAN", "GB82 WEST 1234 5698 7654 32"),
    ("IBAN", "DE89370400440532013000"),
    ("IBAN", "NO93 8601 1117 947"),
    ("PHONE", "+1 (415) 555-2671"),
    ("PHONE", "+44 20 7946 0958"),
    ("PHONE", "+4915112345678"),
    ("PHONE", "(415) 555-2671"),
    ("PHONE", "415-555-2671"),
    ("SSN", "078-05-1120"),
    ("IP", "203.0.113.42"),
    ("IP", "2001:db8:85a3::8a2e:370:7334"),
    ("AWS_KEY", "AKIAIOSFODNN7EXAMPLE"),
    ("API_KEY", "ghp_" + "0" * 36),
    ("API_KEY", "sk-proj-abcdefghijklmnopqrstuvwx"),
    ("API_KEY", "sk-ant-api03-abcdefghijklmnopqrst"),
    ("API_KEY", "xoxb-123456789012-abcdefghij"),
    ("API_KEY", "hf_abcdefghijklmnopqrstuvwxyzABCD"),
    ("API_KEY", "AIza" + "b" * 35),
    ("TOKEN", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123_-x"),
    ("PRIVATE_KEY", "-----BEGIN RSA PRIVATE KEY-----\nMIIEexample\n-----END RSA PRIVATE KEY-----"),
]
FRAMES = ["{}", "I am {}.", "see ({}), thanks", "a: {}\nb", '"{}"', "x\t{} y", "{},{}"]
ORDINARY = [
    "Hi, order ORD-48213 of 12 March 2024 for $1,234.50 hasn't arrived",
    "#48213, A-1029 and B-77: total 1234.50 EUR or 1.234.567,89",
    "2024-05-20, 20/05/2024, 20.05.2024, May 20th, 2024 at 10:30:45, 2024-05-20T10:30:45.123456Z",
    "order number 555-123-4567 is late, invoice no. 415-555-2671 too",
    "order ids 48213 48214 48215 48216 48217, ref 2024-000123-45",
    "tracking 1Z999AA10123456784, SKU 8-4561-22, ISBN 9780306406157, HAT136 on 2024-05-20 2024-05-21",
    "call me about order 4821357 before 2024-06-01",
    "epoch 1757015036544107 and 1757015036, 12 345 678 units, 1,000,000,000.00",
    "std::vector<int> at 12:30:45, MAC 00:1b:44:11:3a:b7, v1.2.3.4 and version 1.2.3.4, 127.0.0.1",
    "git@github.com:org/repo.git and pip install pkg==1.2.3",
    "credit_card_7815826, gift_card_4421486, user mia_li_3668",
    "my secret is safe, the password: required field, token usage 12345 tokens, bearer of bad news",
    "+20240520\n+2024-05-20 changed",
    "Card 4111 1111 1111 1112 is no card, DE89370400440532013001 no IBAN, 900-12-3456 no SSN",
]


@pytest.mark.parametrize(("kind", "value"), PLANTED)
def test_planted_values_are_found_in_every_frame(kind: str, value: str) -> None:
    for frame in FRAMES:
        redactor = Redactor(KEY)
        text = redactor.text(frame.replace("{}", value))
        assert numbered(text) == frame.replace("{}", f"[{kind}_1]"), text
        assert redactor.counts == {kind: frame.count("{}")}
        assert Redactor(KEY).text(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_support_text_is_left_alone(text: str) -> None:
    redactor = Redactor(KEY)
    assert redactor.text(text) == text
    assert redactor.json(json.dumps({"m": text})) == json.dumps({"m": text})
    assert redactor.counts == {}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("password=hunter22 next", "password=[SECRET_1] next"),
        ("api_key: 'abc123def456'", "api_key: '[SECRET_1]'"),
        ("my password is hunter22!", "my password is [SECRET_1]"),
        ("postgres://app:s3cr3t@db:5432/x", "postgres://app:[SECRET_1]@db:5432/x"),
        ("Authorization: Bearer abcdef1234567890abcdef", "Authorization: Bearer [TOKEN_1]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [AWS_KEY_1]"),
        ("phone: 020 7946 0958", "phone: [PHONE_1]"),
        ("reach me at 5551234567 today", "reach me at [PHONE_1] today"),
        ("+44 20 7946 0958 078-05-1120", "[PHONE_1] [SSN_1]"),
        ("card 4111 1111 1111 1111 123 exp 12/27", "card [CARD_1] 123 exp 12/27"),
        ("-----BEGIN EC PRIVATE KEY-----\ncut off", "[PRIVATE_KEY_1]"),
        ("api_key = os.environ['KEY1']", "api_key = os.environ['KEY1']"),
        ("password = get_password1()", "password = get_password1()"),
    ],
)
def test_values_that_only_their_context_gives_away(text: str, redacted: str) -> None:
    once = Redactor(KEY).text(text)
    assert numbered(once) == redacted
    assert Redactor(KEY).text(once) == once


def test_equal_values_have_one_placeholder_in_a_trajectory() -> None:
    redactor = Redactor(KEY)
    texts = [redactor.text("a@x.com b@x.com"), redactor.text("again b@x.com"), redactor.json('{"to":"a@x.com"}')]
    assert numbered("|".join(texts)) == '[EMAIL_1] [EMAIL_2]|again [EMAIL_2]|{"to":"[EMAIL_1]"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"card": 4111111111111111, "n": 1.10}', {"card": "[CARD_1]", "n": 1.10}),
        ('{"password": "hunter", "n": [1]}', {"password": "[SECRET_1]", "n": [1]}),
        ('{"a@x.com": {"b": "\\u0061@x.com"}}', {"[EMAIL_1]": {"b": "[EMAIL_1]"}}),
        ('{"mail": "jane\\u0040x.com"}', {"mail": "[EMAIL_1]"}),
        ('{"t": "line\\njane@x.com"}', {"t": "line\n[EMAIL_1]"}),
        ('[{"url": "https:\\/\\/u:pw1@h"}]', [{"url": "https://u:[SECRET_1]@h"}]),
        ('{"inner": "{\\"card\\": 4111111111111111}"}', {"inner": '{"card":"[CARD_1]"}'}),
    ],
)
def test_json_stays_json(text: str, value: Any) -> None:
    for apply in (Redactor(KEY).json, Redactor(KEY).text):
        redacted = apply(text)
        assert json.loads(numbered(redacted)) == value
        assert Redactor(KEY).json(redacted) == redacted


def test_clean_json_is_not_even_reformatted() -> None:
    text = '{ "b" : 1.10,\n "a": [ "order A-1029", "2024-05-20" ], "big": 18446744073709551617 }'
    assert Redactor(KEY).json(text) == text


def test_broken_json_is_redacted_as_text() -> None:
    assert numbered(Redactor(KEY).text('{"mail": "jane\\u0040x.com", "cut')) == '{"mail": "[EMAIL_1]", "cut'
    assert numbered(Redactor(KEY).text('{"t": "x\\njane@x.com", "cut')) == '{"t": "x\\[EMAIL_1]", "cut'
    assert Redactor(KEY).text('{"a": "\\u0041", "cut') == '{"a": "\\u0041", "cut'


def test_users_get_the_same_name_everywhere_and_another_under_another_key() -> None:
    names = {Redactor(key).user("mia_li_3668") for key in (KEY, KEY, b"other")}
    assert len(names) == 2
    redactor = Redactor(KEY)
    name = redactor.user("mia_li_3668")
    assert redactor.user(name) == name
    assert redactor.text("I am mia_li_3668, not mia_li_36689") == f"I am {name}, not mia_li_36689"
    assert json.loads(redactor.json('{"x": "mia_li_3668"}')) == {"x": name}


def test_a_user_id_that_is_a_common_word_is_replaced_under_its_name_only() -> None:
    redactor = Redactor(KEY)
    name = redactor.user("7")
    assert redactor.text("7 items") == "7 items"
    assert json.loads(redactor.json('{"user_id": "7", "user": 7, "items": "7"}')) == {
        "user_id": name,
        "user": name,
        "items": "7",
    }


TRAJECTORY = Trajectory(
    trajectory_id="t",
    content_sha256="",
    source_id="s",
    source_record_ix=0,
    format="f",
    n_steps=1,
    content_complete=True,
    session_id="jane@x.com",
    user_id="jane@x.com",
    tags=("vip", "mail jane@x.com"),
    metadata='{"user":"jane@x.com"}',
)
STEP = Step(trajectory_id="t", step_ix=0, role="user", content_state="present")
CALL = ToolCall(trajectory_id="t", step_ix=0, call_ix=0, args_state="ok", result_state="ok")
OUTCOME = Outcome(
    outcome_id="o", trajectory_id="t", name="n", value_type="null", source_kind="human_user", source_id="ann@x.com"
)


def test_a_fragment_is_redacted_in_every_table() -> None:
    dirty = Fragment(
        key="t",
        record_ix=0,
        trajectory=TRAJECTORY,
        steps=(replace(STEP, content="I am bob@x.com", parts='["bob@x.com"]', reasoning="bob@x.com"),),
        tool_calls=(
            replace(CALL, args_raw='{"m": "bob@x.com"}', args='{"m":"bob@x.com"}', result_text="to bob@x.com"),
        ),
        outcomes=(replace(OUTCOME, explanation="bob@x.com is angry"),),
        blobs=(Blob(sha256="b", mime="text/plain", data=b"bob@x.com"), Blob(sha256="c", mime="image/png", data=b"@")),
    )
    counts = Counter[str]()
    clean = REDACTION.fragment(dirty, counts)
    assert "x.com" not in repr(clean)
    user = clean.trajectory.user_id
    assert user is not None
    assert user.startswith("user-")
    assert clean.trajectory.session_id == user  # the same person, wherever the id stands
    assert json.loads(clean.trajectory.metadata or "") == {"user": user}
    assert numbered(clean.steps[0].content or "") == "I am [EMAIL_1]"
    assert numbered(clean.tool_calls[0].args or "") == '{"m":"[EMAIL_1]"}'
    assert (clean.outcomes[0].source_id or "").startswith("id-")
    assert clean.steps[0].content == f"I am {clean.blobs[0].data.decode()}"
    assert clean.blobs[1].data == b"@"
    assert counts["EMAIL"] >= 6
    counts.clear()
    assert REDACTION.fragment(clean, counts) == clean
    assert not counts


@pytest.mark.parametrize("row", [TRAJECTORY, STEP, CALL, OUTCOME], ids=lambda row: type(row).__name__)
def test_every_text_column_passes_through_unless_it_is_an_id_or_a_hash(row: Any) -> None:
    """A column that is added to a record later is redacted without anybody thinking of it."""
    texts = [f.name for f in fields(row) if "str" in str(f.type) or "Json" in str(f.type)]
    dirty = replace(row, **{name: ("z@x.com",) if "tuple" in str(_type(row, name)) else "z@x.com" for name in texts})
    place = {Trajectory: "trajectory", Step: "steps", ToolCall: "tool_calls", Outcome: "outcomes"}[type(row)]
    head = Fragment(key="t", record_ix=0, trajectory=TRAJECTORY)
    clean = REDACTION.fragment(replace(head, **{place: dirty if place == "trajectory" else (dirty,)}))
    result = clean.trajectory if place == "trajectory" else getattr(clean, place)[0]
    untouched = {name for name in texts if "z@x.com" in str(getattr(result, name))}
    assert untouched <= {
        "trajectory_id", "parent_trajectory_id", "subagent_trajectory_id", "outcome_id",
        "content_sha256", "system_prompt_sha256", "tools_sha256", "source_id",
    }  # fmt: skip
    assert "source_id" not in untouched or isinstance(row, Trajectory)


def _type(row: Any, name: str) -> Any:
    return next(field.type for field in fields(row) if field.name == name)


def test_quarantined_bytes_of_any_encoding() -> None:
    assert numbered(REDACTION.data(b"bad \xff jane@x.com", "utf-8").decode()) == "bad � [EMAIL_1]"
    assert numbered(REDACTION.data("jane@x.com".encode("utf-16-le"), "utf-16-le").decode()) == "[EMAIL_1]"


def test_redaction_is_idempotent_on_mixtures() -> None:
    rng = random.Random(6)
    pieces = (
        [value for _, value in PLANTED]
        + ORDINARY
        + ['{"a": "', '"}', "\\u0040", "\\n", "[EMAIL_1]", '"password": "x1"']
    )
    for _ in range(1000):
        text = " ".join(rng.choice(pieces) for _ in range(rng.randrange(1, 6)))
        once = Redactor(KEY).text(text)
        assert Redactor(KEY).text(once) == once


def test_hostile_lengths_take_no_time() -> None:
    for text in (
        "x" * 300_000,
        "1" * 300_000,
        "@" * 100_000,
        "a." * 100_000,
        "1 " * 100_000,
        "+1 " * 50_000,
        "::" * 50_000,
    ):
        Redactor(KEY).text(text)
    Redactor(KEY).text('{"a":' * 5000)
    Redactor(KEY).text(json.dumps({"a": json.dumps({"b": json.dumps({"c": json.dumps(["d@x.com"])})})}))
