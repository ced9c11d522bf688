from collections.abc import Sequence

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        from accounts import known_models

        known_models.provide(_served_models)


def _served_models() -> Sequence[str]:
    """What a key may be limited to; nothing in a process that serves nobody."""
    from gateway.runtime import runtime

    try:
        return [model.id for model in runtime().upstreams.models()]
    except RuntimeError:
        return []
