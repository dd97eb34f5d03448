"""Envelopes that hold calls as other systems pack them, opened into records that look like a gateway's.

    {object: list, data: [...]}, {data: [...], has_more}    a page of an API's list of stored completions, responses
    {requests: [{custom_id, params}, ...]}                  what is sent to a batch API at once
    {schemaType: ModelInvocationLog, input, output}         Amazon Bedrock's log of a call: its bodies are opened
    {call_type, messages: {}, proxy_server_request}         LiteLLM's spend logs: what the proxy was asked
    {modelId, messages: [{content: [{text | toolUse}]}]}    bodies of Bedrock's Converse, in Anthropic's words

Usage of Converse leaves cached input out, as Anthropic's does. A block that Anthropic has no word for stays as it was.

Not covered: bodies that Bedrock put into a file of their own (the log names it, and it stays in `extra`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_int, as_list

_ITEMS = ("choices", "output", "stop_reason")  # of a chat completion, a response, an Anthropic message
_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}
_SETTINGS = {
    "maxTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop_sequences",
}


def opened(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records in an envelope; the record itself, with Converse's bodies rewritten, where it is none."""
    page = record.get("data")
    if isinstance(page, list) and page and (record.get("object") == "list" or "has_more" in record):
        if all(any(key in as_dict(item) for key in _ITEMS) for item in page):
            return [as_dict(item) for item in page]
        if all("role" in as_dict(item) and "content" in as_dict(item) for item in page):
            rest = {key: item for key, item in record.items() if key not in ("data", "object")}
            return [{"messages": _thread(page), **rest}]
    asked = record.get("requests")
    if isinstance(asked, list) and asked and all("custom_id" in as_dict(item) for item in asked):
        return [as_dict(item) for item in asked]
    if "call_type" in record and not record.get("messages") and as_dict(record.get("proxy_server_request")):
        rest = {key: item for key, item in record.items() if key not in ("messages", "proxy_server_request")}
        record = {**rest, "request": record["proxy_server_request"]}
    if record.get("schemaType") == "ModelInvocationLog":
        record = _bedrock(record)
    bodies = {key: made for key in ("request", "response") if (made := _converse(as_dict(record.get(key))))}
    return [{**record, "provider": record.get("provider", "aws.bedrock"), **bodies} if bodies else record]


def _thread(messages: list[Any]) -> list[Any]:
    """Messages of a thread of the Assistants API, in order of time (a page begins with the last), in words of chat."""
    times = [as_int(message.get("created_at")) for message in messages]
    if any(message.get("object") != "thread.message" for message in messages) or None in times:
        return messages
    ordered = messages if times == sorted(times, key=lambda at: at or 0) else messages[::-1]
    return [{**message, "content": [_thread_part(part) for part in as_list(message["content"])]} for message in ordered]


def _thread_part(part: Any) -> Any:
    text = as_dict(as_dict(part).get("text"))
    if not isinstance(text.get("value"), str):
        return part
    return {**part, "text": text["value"], **{key: item for key, item in text.items() if key != "value"}}


def _bedrock(log: Mapping[str, Any]) -> dict[str, Any]:
    """A log of Bedrock with its bodies as request and response, its ids and model where gateways have them."""
    told, said = as_dict(log.get("input")), as_dict(log.get("output"))
    rest = {key: item for key, item in log.items() if key not in ("input", "output")}
    beside = {
        "input": {key: item for key, item in told.items() if key != "inputBodyJson"},
        "output": {key: item for key, item in said.items() if key != "outputBodyJson"},
    }
    return {
        **rest,
        "bodies": beside,
        "provider": "aws.bedrock",
        "request_id": log.get("requestId"),
        "model": log.get("modelId"),
        "request": told.get("inputBodyJson"),
        "response": said.get("outputBodyJson"),
    }


def _converse(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """A body of Converse in Anthropic's words; None for any other body."""
    message = as_dict(as_dict(body.get("output")).get("message"))
    if message and "stopReason" in body:
        usage = {_USAGE.get(key, key): item for key, item in as_dict(body.get("usage")).items()}
        rest = {key: item for key, item in body.items() if key not in ("output", "stopReason", "usage")}
        more = {key: item for key, item in message.items() if key != "content"}
        content = [_block(block) for block in as_list(message.get("content"))]
        stop = {"stop_reason": body["stopReason"], "usage": usage}
        return {"type": "message", **rest, **more, "content": content, **stop}
    told = body.get("messages")
    if not isinstance(told, list) or not any(_is_converse(message) for message in told):
        return None
    settings = {_SETTINGS.get(key, key): item for key, item in as_dict(body.get("inferenceConfig")).items()}
    listed = as_dict(body.get("toolConfig")).get("tools")
    own: dict[str, Any] = {"anthropic_version": "converse", "messages": [_message(message) for message in told]}
    if isinstance(body.get("system"), list):
        own["system"] = [_block(block) for block in body["system"]]
    if isinstance(listed, list):
        own["tools"] = [as_dict(tool).get("toolSpec", tool) for tool in listed]
        own["tool_config"] = {key: item for key, item in body["toolConfig"].items() if key != "tools"}
    taken = ("messages", "system", "inferenceConfig", *(("toolConfig",) if isinstance(listed, list) else ()))
    return {**{key: item for key, item in body.items() if key not in taken}, **settings, **own}


def _is_converse(message: Any) -> bool:
    """Whether a message has blocks without a type, as only Converse has them."""
    blocks = as_dict(message).get("content")
    return isinstance(blocks, list) and any(
        "type" not in block and {"text", "toolUse", "toolResult"} & set(block)
        for block in blocks
        if isinstance(block, dict)
    )


def _message(message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [_block(block) for block in message["content"]]}


def _block(block: Any) -> Any:
    """One block of Converse as Anthropic's."""
    if not isinstance(block, dict) or "type" in block:
        return block
    if isinstance(block.get("text"), str):
        return {"type": "text", **block}
    use, result = as_dict(block.get("toolUse")), as_dict(block.get("toolResult"))
    if use:
        return {"type": "tool_use", **{"id" if key == "toolUseId" else key: item for key, item in use.items()}}
    if result:
        rest = {key: item for key, item in result.items() if key not in ("toolUseId", "content")}
        content = [_block(part) for part in as_list(result.get("content"))]
        failed = {"is_error": result["status"] == "error"} if isinstance(result.get("status"), str) else {}
        return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": content, **rest, **failed}
    thought = as_dict(as_dict(block.get("reasoningContent")).get("reasoningText"))
    if isinstance(thought.get("text"), str):
        return {"type": "thinking", "thinking": thought["text"], **{k: v for k, v in thought.items() if k != "text"}}
    return block
