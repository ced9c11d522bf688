"""What each model's backend refuses, in its own words and with its own status.

The order is the order of the layers: reading the body (422) comes before the validators
and the chat template (400), whichever fault stands first in the request.
"""

from gateway.catalog import Developer, Rejection
from gateway.demo.chat_request import ChatRequest, images_in
from gateway.demo.refusal import BadRequest, Refusal, UnreadableBody

_ROLES = ("system", "user", "assistant", "tool")


def check(request: ChatRequest) -> None:
    """Raises `Refusal` where the model's backend would."""
    faults = [*_role_faults(request), *_effort_faults(request), *_system_faults(request)]
    faults += [*_image_faults(request), *_format_faults(request), *_tool_faults(request)]
    if faults:
        raise max(faults, key=lambda fault: fault.status == 422)


def check_context(request: ChatRequest, *, prompt_tokens: int) -> None:
    window = request.model.context_length
    wanted = request.max_tokens or 0
    # A prompt that fills the window leaves no room for a first token.
    if window is None or prompt_tokens + max(wanted, 1) <= window:
        return
    raise BadRequest(
        f"This model's maximum context length is {window} tokens. However, you requested "
        f"{prompt_tokens + wanted} tokens ({prompt_tokens} in the messages, {wanted} in the completion). "
        "Please reduce the length of the messages or completion."
    )


def _rendered(rejection: Rejection, **values: object) -> Refusal:
    kind = UnreadableBody if rejection.status == 422 else BadRequest
    refusal = kind("")
    refusal.text = rejection.render(**values)
    return refusal


def _role_faults(request: ChatRequest) -> list[Refusal]:
    rules = request.model.messages
    faults: list[Refusal] = []
    for index, message in enumerate(request.messages):
        role = message["role"]
        if role in _ROLES or (role == "developer" and rules.developer is not Developer.REJECTED):
            continue
        if rules.developer_rejection is not None:
            faults.append(_rendered(rules.developer_rejection, index=index, role=role))
        else:
            faults.append(UnreadableBody(f"messages[{index}]: unknown role: {role}"))
    return faults[:1]


def _effort_faults(request: ChatRequest) -> list[Refusal]:
    effort, thinking = request.effort, request.model.thinking
    if effort is None or effort in thinking.efforts or thinking.rejection is None:
        return []
    return [_rendered(thinking.rejection, effort=effort)]


def _system_faults(request: ChatRequest) -> list[Refusal]:
    rejection = request.model.messages.system_rejection
    misplaced = any(message["role"] == "system" for message in request.messages[1:])
    return [_rendered(rejection)] if rejection is not None and misplaced else []


def _image_faults(request: ChatRequest) -> list[Refusal]:
    urls = [url for message in request.messages for url in images_in(message)]
    if urls and not request.model.sees_images:
        return [BadRequest(f"{request.model.id} is not a multimodal model: it takes no image_url parts.")]
    if any(not url.startswith(("data:image/", "http://", "https://")) for url in urls):
        return [BadRequest("Invalid image_url: expected a data: or http(s) URL.")]
    return []


def _format_faults(request: ChatRequest) -> list[Refusal]:
    form = request.response_format
    if form is None:
        return []
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        return [UnreadableBody(f"response_format: unknown variant `{kind}`")]
    described = form.get("json_schema")
    if kind == "json_schema" and not (isinstance(described, dict) and isinstance(described.get("schema"), dict)):
        return [BadRequest("response_format of type json_schema needs json_schema.schema.")]
    return []


def _tool_faults(request: ChatRequest) -> list[Refusal]:
    choice = request.tool_choice
    if choice in ("auto", "none"):
        return []
    if not request.tools:
        return [BadRequest("When using `tool_choice`, `tools` must be set.")]
    if choice == "required":
        return []
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in [tool["name"] for tool in request.tools]:
        return [BadRequest("The tool specified in `tool_choice` does not match any of the specified `tools`.")]
    return []
