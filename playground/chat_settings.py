"""What each model lets one set beside the chat, and why not where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.catalog import EFFORTS, Model, Switch
from gateway.portable import nearest_effort

type Text = str | Promise


@dataclass(frozen=True, slots=True)
class Effort:
    """One choice of the effort picker; an empty value sends nothing."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """The one control of thinking that a model has: tiers, a switch, or none and why."""

    efforts: tuple[Effort, ...] = ()
    switch: bool = False
    reason: Text = ""


@dataclass(frozen=True, slots=True)
class Controls:
    """What one model takes. A reason stands where it would ignore or refuse a field; empty: it takes it."""

    thinking: ThinkingControl
    json_object: Text = ""
    json_schema: Text = ""
    tools: Text = ""
    stop: Text = ""
    images: Text = ""


def controls_of(model: Model, *, portable: bool = False) -> Controls:
    return Controls(
        thinking=thinking_control(model, portable=portable),
        json_object="" if model.json_output else _("This model has no JSON mode."),
        json_schema="" if model.structured_outputs else _("This model takes no JSON schema."),
        tools="" if model.tools else _("This model does not call tools."),
        stop="" if "stop" in model.extra_parameters else _("Stop sequences are not passed on to this model."),
        images="" if model.sees_images else _("This model reads text only."),
    )


def thinking_control(model: Model, *, portable: bool = False) -> ThinkingControl:
    switch = model.thinking.switch
    if portable and switch in (Switch.REASONING_EFFORT, Switch.ENABLE_THINKING):
        default = Effort("", _default_label(model))
        return ThinkingControl(efforts=(default, *(Effort(tier, _portable_label(model, tier)) for tier in EFFORTS)))
    if switch is Switch.REASONING_EFFORT and model.efforts:
        return ThinkingControl(
            efforts=(Effort("", _default_label(model)), *(Effort(tier, tier) for tier in model.efforts))
        )
    if switch is Switch.ENABLE_THINKING:
        return ThinkingControl(switch=True)
    if switch is Switch.ALWAYS_ON:
        return ThinkingControl(
            reason=_(
                "This model always thinks, about equally long: it accepts the effort tiers and does not act on them."
            )
        )
    return ThinkingControl(reason=_("This model answers directly. It has no separate thinking to set."))


def _default_label(model: Model) -> str:
    if not model.known:
        return gettext("Model's default")
    if model.default_effort:
        return gettext("Default (%s)") % model.default_effort
    return gettext("Default (thinks)") if model.thinks_by_default else gettext("Default (does not think)")


def _portable_label(model: Model, tier: str) -> str:
    """The tier, and what portable mode makes of it for this model where that is another."""
    if model.thinking.switch is Switch.ENABLE_THINKING:
        return f"{tier} → {gettext('thinking off') if tier == 'none' else gettext('thinking on')}"
    nearest = nearest_effort(tier, model.efforts)
    return tier if nearest == tier else f"{tier} → {nearest}"
