"""Recall on planted values in many spellings, one placeholder for all of a value, and what tokens give away."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from planted import KINDS, grouped, luhn, planted
from test_redact import CALL, KEY, REDACTION, STEP, TRAJECTORY

from flywheel.config import Config, RedactionSection, load_config
from flywheel.errors import ConfigError
from flywheel.formats.assemble import content_sha256
from flywheel.init import config_text
from flywheel.records import Fragment
from flywheel.trajectory.placeholders import PLACEHOLDER, numbered
from flywheel.trajectory.redact import Redaction, Redactor, session_of

FRAMES = [
    "{}", "I am {}.", "see ({}), thanks", "a: {}\nb", '"{}"', "x\t{} y", "{},{}", "é {} ü", "Kontakt: {}; danke",
    "<{}>", "[{}]", "'{}'", "value={}&next=1", "first line\n{}", "{}\r\n",
]  # fmt: skip
WORDS = ["jane", "planted", "sven", "priya", "martin", "wei", "jörg", "info"]


@pytest.mark.parametrize("kind", KINDS)
def test_planted_values_are_found_in_many_spellings(kind: str) -> None:
    """At least 99 in 100, of each kind, in plain text, in JSON, and in JSON inside JSON with every sign escaped."""
    rng, missed, n = random.Random(kind), [], 0
    for _, value in (pair for pair in planted(11, 100) if pair[0] == kind):
        text = rng.choice(FRAMES).replace("{}", value)
        inner = json.dumps({"note": text})
        forms = [text, inner, json.dumps({"arguments": inner}), json.dumps([text], ensure_ascii=False)]
        for form in forms:
            n += 1
            redactor = Redactor(KEY)
            clean = redactor.text(form)
            if not redactor.counts or not PLACEHOLDER.search(clean) or value in clean:
                missed.append((form, clean))
            assert Redactor(KEY).text(clean) == clean
    assert len(missed) <= n * 0.01, (len(missed), n, missed[:5])


def test_every_spelling_of_a_value_has_one_placeholder() -> None:
    rng = random.Random(2)
    number = luhn("4", 16, rng)
    text = " and ".join([number, grouped(number, (4, 4, 4), " "), grouped(number, (4, 4, 4), "-")])
    assert numbered(Redactor(KEY).text(text)) == "[CARD_1] and [CARD_1] and [CARD_1]"
    assert numbered(Redactor(KEY).text("Jane@Example.org, jane@example.org")) == "[EMAIL_1], [EMAIL_1]"


def test_placeholders_hold_through_a_session_and_say_nothing_outside_of_it() -> None:
    def placeholder(**columns: str) -> str:
        head = replace(TRAJECTORY, **{"session_id": None, "user_id": None, **columns})
        step = replace(STEP, content="I am bob@x.com")
        clean = REDACTION.fragment(Fragment(key="t", record_ix=0, trajectory=head, steps=(step,)))
        return (clean.steps[0].content or "").removeprefix("I am ")

    first = placeholder(session_id="s-1", native_id="a")
    assert PLACEHOLDER.fullmatch(first)
    assert placeholder(session_id="s-1", native_id="b") == first
    assert placeholder(session_id="s-2", native_id="a") != first
    assert placeholder(native_id="a") != placeholder(native_id="b")
    outcome = REDACTION.outcomes([_outcome(session_id="s-1"), _outcome(native_target_id="trace")])
    assert outcome[0].explanation == first
    assert outcome[1].explanation == placeholder(trace_id="trace")
    assert session_of(TRAJECTORY) == "jane@x.com"


def _outcome(**columns: str):  # type: ignore[no-untyped-def]
    from test_redact import OUTCOME

    return replace(OUTCOME, source_id=None, explanation="bob@x.com", **columns)


def test_conversations_that_differ_in_what_was_taken_out_have_one_content_hash() -> None:
    def digest(mail: str, other: str, session: str) -> str:
        head = replace(TRAJECTORY, session_id=session, user_id=f"{session}_9")
        step = replace(STEP, content=f"{mail} wrote to {other} for {session}_9")
        clean = REDACTION.fragment(Fragment(key="t", record_ix=0, trajectory=head, steps=(step,)))
        return content_sha256(clean.steps, ())

    same = digest("a@x.com", "b@x.com", "alpha")
    assert digest("c@y.org", "d@y.org", "beta") == same
    assert digest("a@x.com", "a@x.com", "alpha") != same


def test_tokens_of_what_was_taken_out_go_too() -> None:
    extra = json.dumps({"prompt_token_ids": [1, 2], "n": 1, "choice": {"logprobs": {"content": [{"token": "bob"}]}}})
    steps = tuple(
        replace(STEP, step_ix=ix, content=text, token_ids=(1, 2), logprobs=(0.5, 0.5), extra=extra)
        for ix, text in enumerate(["I am bob@x.com", "hello", "I call"])
    )
    call = replace(CALL, step_ix=2, args_raw='{"to":"bob@x.com"}')
    counts = Counter[str]()
    fragment = Fragment(key="t", record_ix=0, trajectory=TRAJECTORY, steps=steps, tool_calls=(call,))
    clean = REDACTION.fragment(fragment, counts)
    assert [step.token_ids for step in clean.steps] == [None, (1, 2), None]
    assert [step.logprobs for step in clean.steps] == [None, (0.5, 0.5), None]
    assert clean.steps[0].quality_flags == ("tokens_redacted",)
    for step in clean.steps:
        held = json.loads(step.extra or "")
        assert held["n"] == 1
        assert isinstance(held["prompt_token_ids"], str)
        assert isinstance(held["choice"]["logprobs"], str)
    assert counts["TOKEN_IDS"] == 5
    assert REDACTION.fragment(clean) == clean
    quiet = replace(fragment, trajectory=replace(TRAJECTORY, session_id=None, user_id=None, tags=None, metadata=None))
    quiet = replace(quiet, steps=steps[1:2], tool_calls=())
    assert REDACTION.fragment(quiet) == quiet


def test_redaction_of_any_mixture_in_any_column_is_idempotent() -> None:
    rng = random.Random(9)
    values = [value for _, value in planted(9, 12)] + WORDS
    for _ in range(150):
        texts = [" ".join(rng.choices(values, k=rng.randrange(1, 5))) for _ in range(5)]
        step = replace(STEP, content=texts[0], parts=json.dumps([{"text": texts[1]}]), extra=json.dumps({texts[2]: 1}))
        call = replace(CALL, args_raw=json.dumps({"a": texts[3]}), result_text=texts[4])
        dirty = Fragment(key="t", record_ix=0, trajectory=TRAJECTORY, steps=(step,), tool_calls=(call,))
        clean = REDACTION.fragment(dirty)
        assert REDACTION.fragment(clean) == clean
        assert Redaction(key=b"another key").fragment(clean).steps == clean.steps


def test_off_gives_everything_back_and_is_on_record() -> None:
    off = Redaction(key=KEY, enabled=False)
    dirty = Fragment(key="t", record_ix=0, trajectory=TRAJECTORY, steps=(replace(STEP, content="bob@x.com"),))
    assert off.fragment(dirty) is dirty
    assert off.data(b"bob@x.com \xff", "utf-8") == b"bob@x.com \xff"
    assert off.text("bob@x.com") == "bob@x.com"
    assert off.inputs() == {"redaction": {"mode": "off"}}
    assert REDACTION.inputs() == {}


def test_patterns_of_the_configuration(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = Config(redaction=RedactionSection(patterns={"TICKET": r"\bT-[0-9]{6}\b", "STAFF": r'staff "?(\w+)'}))
    path = tmp_path / "flywheel.toml"
    path.write_text(config_text(config))
    assert load_config(path) == config
    own = Redaction(key=KEY, own=tuple(config.redaction.patterns.items()))
    counts = Counter[str]()
    assert numbered(own.text("T-123456 by staff bob, T-1234567", counts)) == "[TICKET_1] by staff [STAFF_1], T-1234567"
    assert counts == {"TICKET": 1, "STAFF": 1}
    assert json.loads(numbered(own.text('{"note": "T-123456"}'))) == {"note": "[TICKET_1]"}
    assert own.inputs() == {"redaction": {"patterns": config.redaction.patterns}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (r"patterns = { TICKET = '(?<=x)\d' }", "no look-around"),
        ("patterns = { ticket = 'x' }", "a name in capitals"),
        ("patterns = { TICKET = 'x*' }", "matches the empty text"),
        ("mode = 'maybe'", "'on' or 'off'"),
    ],
)
def test_a_bad_setting_is_refused_at_load(tmp_path, line: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "flywheel.toml"
    path.write_text(f"[redaction]\n{line}\n")
    with pytest.raises(ConfigError, match=reason):
        load_config(path)
