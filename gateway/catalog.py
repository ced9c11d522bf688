"""The model catalog: every model the gateway knows, by the id that clients send.

    catalog = load()                        # the catalog that ships with the gateway
    catalog = load(BUNDLED, Path("mine.toml"))  # the same, then one's own cards over it
    catalog["Qwen3.8-27B"].efforts          # ("low", "medium", "xhigh")

Reads files once, at start; what it returns is immutable.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gateway.catalog_file import CatalogError, parse
from gateway.model_card import (
    EFFORTS,
    Developer,
    Endpoint,
    ImageTokens,
    MessageRules,
    Model,
    ReasoningTokens,
    Rejection,
    Switch,
    SystemPlacement,
    Thinking,
    UsageShape,
    unknown_model,
)

__all__ = [
    "BUNDLED",
    "EFFORTS",
    "Catalog",
    "CatalogError",
    "Developer",
    "Endpoint",
    "ImageTokens",
    "MessageRules",
    "Model",
    "ReasoningTokens",
    "Rejection",
    "Switch",
    "SystemPlacement",
    "Thinking",
    "UsageShape",
    "load",
    "unknown_model",
]

BUNDLED = Path(__file__).with_name("catalog.toml")


class Catalog(Mapping[str, Model]):
    """Models by id, in the order of the file they first appeared in."""

    __slots__ = ("_models",)

    def __init__(self, models: Iterable[Model] = ()) -> None:
        self._models = {model.id: model for model in models}

    def __getitem__(self, model_id: str) -> Model:
        return self._models[model_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._models)})"

    def at(self, endpoint: Endpoint) -> tuple[Model, ...]:
        return tuple(model for model in self.values() if model.endpoint is endpoint)

    def chat_models(self) -> tuple[Model, ...]:
        return self.at(Endpoint.CHAT)

    def ocr_models(self) -> tuple[Model, ...]:
        return self.at(Endpoint.OCR)

    def speech_models(self) -> tuple[Model, ...]:
        return self.at(Endpoint.SPEECH)

    def systemone_models(self) -> tuple[Model, ...]:
        return self.at(Endpoint.SYSTEMONE)

    def card_for(self, model_id: str) -> Model:
        """The model's card, or a permissive one where no card describes it."""
        return self._models.get(model_id) or unknown_model(model_id)

    def including(self, models: Iterable[Model]) -> "Catalog":
        """These cards over the present ones: a known id keeps its place, a new one is added."""
        return Catalog((self._models | {model.id: model for model in models}).values())


def load(*paths: Path) -> Catalog:
    """The catalog of these files; a later file's card replaces the whole earlier one.

    Without a path, the bundled catalog. Raises `CatalogError`.
    """
    catalog = Catalog()
    for path in paths or (BUNDLED,):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogError(f"cannot be read: {error}", file=str(path)) from error
        catalog = catalog.including(parse(text, file=str(path)))
    return catalog
