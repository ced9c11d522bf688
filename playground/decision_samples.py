"""Decisions to begin with: a state, and questions of each type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Sample:
    id: str
    icon: str
    title: str | Promise
    state: str
    questions: dict[str, Any]


SAMPLES = (
    Sample(
        "mail",
        "mail",
        _("Sort a customer's mail"),
        "My parcel was due on Monday. It is Thursday, nobody answers the phone, and I want my money back.",
        {
            "angry": {"type": "noul", "instructions": "Is the customer angry?"},
            "team": {
                "type": "choice",
                "instructions": "Which team should answer?",
                "criteria": {
                    "billing": "Invoices, refunds and payments",
                    "delivery": "Parcels that are late, lost or damaged",
                    "sales": "Questions before buying",
                },
            },
            "urgency": {
                "type": "score",
                "instructions": "How soon does it need an answer?",
                "criteria": ["within the week", "tomorrow", "today", "at once"],
            },
        },
    ),
    Sample(
        "ticket",
        "wrench",
        _("Judge an incident, in Chinese"),
        "凌晨两点起，订单服务每隔几分钟返回一次 502，重启后恢复约十分钟。昨晚上线了新的缓存版本。",
        {
            "回滚": {"type": "noul", "instructions": "是否应该立即回滚昨晚的版本？"},
            "原因": {
                "type": "choice",
                "instructions": "最可能的原因是什么？",
                "criteria": {"缓存": "新版本的缓存", "数据库": "数据库连接耗尽", "网络": "网络抖动"},
            },
            "严重程度": {"type": "score", "criteria": ["轻微", "中等", "严重"]},
        },
    ),
)


def sample_of(id: str) -> Sample | None:
    return next((sample for sample in SAMPLES if sample.id == id), None)
