"""What an answer may say about the request it answers."""

from dataclasses import dataclass

from gateway.demo.chat_request import ChatRequest, images_in
from gateway.demo.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Facts:
    model_id: str
    prompt_tokens: int
    thinking_tokens: int
    effort: str | None
    temperature: float | None
    max_tokens: int | None
    system_text: str
    turn: int  # 1 for the first question of a conversation
    earlier: str  # the first question, where this is not it
    images: int
    image_tokens: int
    choice: int  # 0 for the first of n


def gather(request: ChatRequest, prompt: Prompt, *, thinking_tokens: int, choice: int) -> Facts:
    asked = request.user_texts
    return Facts(
        model_id=request.model.id,
        prompt_tokens=len(prompt.tokens),
        thinking_tokens=thinking_tokens,
        effort=request.effort or request.model.default_effort,
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        system_text=" ".join(request.system_texts).strip(),
        turn=len(asked),
        earlier=asked[0] if len(asked) > 1 else "",
        images=sum(len(images_in(message)) for message in request.messages),
        image_tokens=prompt.image_tokens,
        choice=choice,
    )
