"""What a model's page says beyond its card's fields: who serves it now, what it refuses, what never reaches it."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from gateway.catalog import Model
from gateway.upstream_state import Status, process_state

# What clients of OpenAI or vLLM send most often of all that is dropped before a request goes on.
OFTEN_SENT = (
    "stop", "seed", "n", "user", "logit_bias", "logprobs", "top_logprobs", "top_k", "min_p", "repetition_penalty",
)  # fmt: skip
AN_EFFORT = "extreme"


class Serving(NamedTuple):
    """The model's servers, as this web process sees them at the moment."""

    servers: int
    ready: int
    in_flight: int
    most_in_flight: int
    """0 where one of them sets no limit."""

    @property
    def is_ready(self) -> bool:
        return self.ready > 0


class Refusal(NamedTuple):
    what: str | Promise
    status: int
    text: str


def serving(model: Model) -> Serving | None:
    """None where no server has it."""
    process = process_state()
    here = [one for one in process.upstreams if model.id in dict(one.models)] if process else []
    if not here:
        return None
    limits = [one.max_concurrency for one in here]
    return Serving(
        servers=len(here),
        ready=sum(one.status in {Status.READY, Status.ON_TRIAL} for one in here),
        in_flight=sum(one.in_flight for one in here),
        most_in_flight=sum(limits) if all(limits) else 0,
    )


def refusals(model: Model) -> list[Refusal]:
    """The backend's own answers, with their status, to what this model does not take."""
    rules = model.messages
    found = [
        (_("An effort it does not take"), model.thinking.rejection),
        (_("A misplaced system message"), rules.system_rejection),
        (_("The developer role"), rules.developer_rejection),
    ]
    values = {"effort": AN_EFFORT, "index": 0, "role": "developer"}
    return [Refusal(what, refused.status, refused.render(**values)) for what, refused in found if refused]


def dropped_parameters(model: Model) -> list[str]:
    return [name for name in OFTEN_SENT if name not in model.extra_parameters]
