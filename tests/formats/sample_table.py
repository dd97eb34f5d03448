"""Sample files that may give no trajectory, or have records that are refused, each with the reason.

Every other file gives at least one trajectory and not one refused record (`test_sample_files.py`).
"""

from __future__ import annotations

# path below the samples' folder -> (codes of what is refused, in order; why)
EXPECTED: dict[str, tuple[tuple[str, ...], str]] = {
    "inspect/2025-05-12T20-28-13-04-00_no-samples.json": ((), "a run cancelled before its first sample: metrics only"),
    "inspect/evalset_2024-08-29T15-11-17+00-00.json": ((), "logged without samples: metrics only"),
    "inspect/evalset_2024-08-29T15-11-18+00-00.json": ((), "logged without samples: metrics only"),
    "inspect/events_empty.json": ((), "a list of no events"),
    "langsmith/letta_runs_vercel_noisy.jsonl": (("invalid_json",), "its first line is no JSON; the rest is read"),
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
    "mini_swe_agent/results.json": ((), "a harness report: outcomes of instances, which join their trajectories"),
    "openinference/phoenix_span_annotations.jsonl": ((), "annotations, which join the spans they name"),
    "openinference/phoenix_span_annotations_jsonified.parquet": ((), "annotations, which join the spans they name"),
    "other_agents/codex_cleanup_input.jsonl": (("invalid_json",), "its first line is no JSON; the rest is read"),
    "other_agents/copilot-cli_cleanup_input.jsonl": (("invalid_json",), "its first line is no JSON; the rest is read"),
    "other_agents/omp_cleanup_input.jsonl": (("truncated_json",), "one line breaks off; the rest is read"),
    "other_agents/pi_cleanup_input.jsonl": (("truncated_json",), "one line breaks off; the rest is read"),
    "otlp/schemas/gen-ai-input-messages.json": (("unknown_format",), "a JSON schema of the conventions, no trace"),
    "otlp/schemas/gen-ai-output-messages.json": (("unknown_format",), "a JSON schema of the conventions, no trace"),
    "otlp/schemas/gen-ai-system-instructions.json": (("unknown_format",), "a JSON schema of the conventions, no trace"),
    "otlp/schemas/gen-ai-tool-call-result.json": (("unknown_format",), "a JSON schema of the conventions, no trace"),
    "swe_agent/v0_all_preds.jsonl": ((), "predictions: patches, which join the trajectories of their instances"),
    "tau2_bench/submission.json": ((), "numbers for a leaderboard, no runs"),
}

# Every folder of the samples.
HELD = (
    "anthropic_messages",
    "atif",
    "claude_code",
    "hf_parquet",
    "inspect",
    "langfuse",
    "langsmith",
    "malformed",
    "mini_swe_agent",
    "mlflow",
    "openai_chat",
    "openai_responses",
    "openhands",
    "openinference",
    "other_agents",
    "otlp",
    "sharegpt",
    "swe_agent",
    "tau2_bench",
    "tau_bench",
    "vcr_cassettes",
    "verifiers",
    "who_and_when",
)
