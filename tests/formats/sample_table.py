"""Sample files that may give no trajectory, or have records that are refused, each with the reason.

Every other file gives at least one trajectory and not one refused record (`test_sample_files.py`).
"""

from __future__ import annotations

# path below the samples' folder -> (codes of what is refused, in order; why)
EXPECTED: dict[str, tuple[tuple[str, ...], str]] = {
    "malformed/all_null_then_struct.jsonl": (("unknown_format",), "columns of a table, no trace"),
    "malformed/deep_200.json": (("unknown_format",), "brackets, no trace"),
    "malformed/deep_5000.json": (("too_deep",), "nested deeper than anything recursive may follow"),
    "malformed/empty.jsonl": (("empty",), "0 bytes"),
    "malformed/html_error_page.json": (("html",), "an error page that was saved as the export"),
    "malformed/late_type_change.jsonl": (("unknown_format",), "a column of a table, no trace"),
    "malformed/nan_infinity.jsonl": (("unknown_format",), "scores without the trace they are of"),
    "malformed/python_repr.jsonl": (("python_repr",), "written by repr(), which is no data format"),
    "malformed/timestamps_mixed_units.jsonl": (("unknown_format",), "times without a trace"),
    "malformed/truncated_last_line.jsonl": (("truncated_json",), "the writer died in the last line; the first is read"),
    "other_agents/codex_cleanup_input.jsonl": (("invalid_json",), "its first line is no JSON; the rest is read"),
    "other_agents/copilot-cli_cleanup_input.jsonl": (("invalid_json",), "its first line is no JSON; the rest is read"),
    "other_agents/omp_cleanup_input.jsonl": (("truncated_json",), "one line breaks off; the rest is read"),
    "other_agents/pi_cleanup_input.jsonl": (("truncated_json",), "one line breaks off; the rest is read"),
}

# Folders whose files are held against the table. The rest still waits for its readers.
HELD = (
    "anthropic_messages",
    "claude_code",
    "hf_parquet",
    "malformed",
    "mini_swe_agent",
    "openai_chat",
    "openai_responses",
    "openhands",
    "other_agents",
    "sharegpt",
    "swe_agent",
    "vcr_cassettes",
)
