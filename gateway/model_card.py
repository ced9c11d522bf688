"""One model as the catalog describes it: typed, immutable, free of I/O.

`Model` is the card. Its parts say what the model's own backend does: `Thinking` (who
decides whether it thinks, and how long), `MessageRules` (which roles may stand where),
`UsageShape` (where the numbers sit in its usage object). `None` in a fact that is
otherwise yes or no means: nobody has verified it.
"""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum

# From the shortest thinking to the longest; the order portable clients reason in.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Endpoint(StrEnum):
    CHAT = "chat"
    OCR = "ocr"
    SPEECH = "speech"
    SYSTEMONE = "systemone"

    @property
    def path(self) -> str:
        return _PATHS[self]

    @property
    def billed_per(self) -> str:
        """The unit a person pays for: token, page, character or input token."""
        return _BILLED_PER[self]


_PATHS = {
    Endpoint.CHAT: "/v1/chat/completions",
    Endpoint.OCR: "/v1/ocr",
    Endpoint.SPEECH: "/v1/audio/speech",
    Endpoint.SYSTEMONE: "/v1/systemone",
}
_BILLED_PER = {
    Endpoint.CHAT: "token",
    Endpoint.OCR: "page",
    Endpoint.SPEECH: "character",
    Endpoint.SYSTEMONE: "input token",
}
_PARAMETERS = {
    Endpoint.CHAT: (
        "temperature",
        "top_p",
        "max_tokens",
        "presence_penalty",
        "frequency_penalty",
        "stream",
        "stream_options",
        "response_format",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "chat_template_kwargs",
    ),
    Endpoint.OCR: ("document", "pages", "include_image_base64", "id"),
    Endpoint.SPEECH: ("input", "voice", "response_format", "speed", "instructions"),
    Endpoint.SYSTEMONE: ("state", "images", "videos", "questions"),
}
_TOOL_PARAMETERS = ("tools", "tool_choice", "parallel_tool_calls")


class Switch(StrEnum):
    """What in a request turns the model's thinking on."""

    REASONING_EFFORT = "reasoning_effort"
    ENABLE_THINKING = "chat_template_kwargs.enable_thinking"
    NONE = "none"  # never shows separate thinking
    ALWAYS_ON = "always_on"  # thinks whatever is sent; tiers are taken and ignored


class SystemPlacement(StrEnum):
    ANYWHERE = "anywhere"
    EXACTLY_ONE_FIRST = "exactly_one_first"
    AT_MOST_ONE_FIRST = "at_most_one_first"
    ONE_FIRST_VERIFIED = "one_first_verified"  # other placements: nobody knows


class Developer(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNVERIFIED = "unverified"


class ReasoningTokens(StrEnum):
    """What `usage.completion_tokens_details.reasoning_tokens` holds."""

    COUNTED = "counted"
    ZERO = "zero"  # present, 0 even when the model thinks
    ABSENT = "absent"  # no completion_tokens_details at all
    UNVERIFIED = "unverified"


class ImageTokens(StrEnum):
    """Where under `usage.prompt_tokens_details` the image count sits."""

    IMAGE_TOKENS = "image_tokens"
    MULTIMODAL = "multimodal_tokens.image"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Rejection:
    """How a backend refuses: its status and its text, with {placeholders}."""

    status: int
    text: str

    def render(self, **values: object) -> str:
        # Not str.format: a backend's text may hold braces of its own.
        text = self.text
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    @property
    def layer(self) -> str:
        """422 comes from reading the body, 400 from a check behind it."""
        return "deserialisation" if self.status == 422 else "validator"


@dataclass(frozen=True, slots=True)
class Thinking:
    by_default: bool = False
    switch: Switch = Switch.NONE
    efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    rejection: Rejection | None = None  # None: a tier it lacks is not refused
    efforts_verified: bool = True


@dataclass(frozen=True, slots=True)
class MessageRules:
    system: SystemPlacement = SystemPlacement.ANYWHERE
    developer: Developer = Developer.UNVERIFIED
    system_rejection: Rejection | None = None
    developer_rejection: Rejection | None = None

    @property
    def single_system_first(self) -> bool:
        """Only one system message at index 0 is known to work."""
        return self.system is not SystemPlacement.ANYWHERE

    @property
    def rejects_misplaced_system(self) -> bool:
        return self.system_rejection is not None


@dataclass(frozen=True, slots=True)
class UsageShape:
    reasoning_tokens: ReasoningTokens = ReasoningTokens.UNVERIFIED
    top_level_reasoning_tokens: bool | None = None
    image_tokens: ImageTokens = ImageTokens.UNVERIFIED
    image_sample: int | None = None  # tokens of the one image that was measured


@dataclass(frozen=True, slots=True)
class Model:
    """A model's card. `id` alone is what a client may send; titles and names are not."""

    id: str
    name: str
    card_title: str
    family: str = ""
    owned_by: str = ""
    description: str = ""
    description_zh: str = ""
    endpoint: Endpoint = Endpoint.CHAT
    context_length: int | None = None
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    tokenizer: str = "GPT"
    stability: str = "experimental"
    json_output: bool = True
    structured_outputs: bool = True
    tools: bool = True
    extra_parameters: tuple[str, ...] = ()
    max_images: int | None = None
    max_characters: int | None = None
    thinking: Thinking = field(default_factory=Thinking)
    messages: MessageRules = field(default_factory=MessageRules)
    usage: UsageShape = field(default_factory=UsageShape)
    notes: tuple[str, ...] = ()
    notes_zh: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    unverified_zh: tuple[str, ...] = ()
    verified_on: date | None = None
    known: bool = True  # False: found at a server, no card describes it

    @property
    def endpoint_path(self) -> str:
        return self.endpoint.path

    @property
    def is_chat(self) -> bool:
        return self.endpoint is Endpoint.CHAT

    @property
    def sees_images(self) -> bool:
        return "image" in self.input_modalities

    @property
    def efforts(self) -> tuple[str, ...]:
        return self.thinking.efforts

    @property
    def default_effort(self) -> str | None:
        """The tier in force when none is sent, where the backend has a name for it."""
        return self.thinking.default_effort

    @property
    def thinks_by_default(self) -> bool:
        return self.thinking.by_default

    @property
    def can_think(self) -> bool:
        return self.thinking.switch is not Switch.NONE

    @property
    def effort_has_effect(self) -> bool:
        return self.thinking.switch is Switch.REASONING_EFFORT

    @property
    def supported_parameters(self) -> tuple[str, ...]:
        """Names a request to this model may carry beside `model` and its input."""
        withheld: set[str] = set()
        if self.is_chat and not self.json_output:
            withheld.add("response_format")
        if self.is_chat and not self.tools:
            withheld.update(_TOOL_PARAMETERS)
        if self.endpoint is Endpoint.SYSTEMONE:
            withheld.update({"images", "videos"} - {f"{m}s" for m in self.input_modalities})
        own = (name for name in _PARAMETERS[self.endpoint] if name not in withheld)
        return (*own, *self.extra_parameters)

    @property
    def created(self) -> int:
        """Unix time for OpenAI's `created`: the day the card was last verified."""
        if self.verified_on is None:
            return 0
        day = self.verified_on
        return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())

    def describe(self, language: str) -> str:
        return (_chinese(language) and self.description_zh) or self.description

    def notes_in(self, language: str) -> tuple[str, ...]:
        return (_chinese(language) and self.notes_zh) or self.notes

    def unverified_in(self, language: str) -> tuple[str, ...]:
        return (_chinese(language) and self.unverified_zh) or self.unverified


def _chinese(language: str) -> bool:
    return language.lower().startswith("zh")


def unknown_model(model_id: str) -> Model:
    """A card for a model some server offers and no catalog describes.

    Nothing is refused on its behalf: images, every tier and every role go through, and
    the server says what it thinks of them.
    """
    return Model(
        id=model_id,
        name=model_id,
        card_title=model_id,
        owned_by="unknown",
        tokenizer="unknown",
        stability="unknown",
        input_modalities=("text", "image"),
        thinking=Thinking(switch=Switch.REASONING_EFFORT, efforts=EFFORTS, efforts_verified=False),
        known=False,
    )
