"""A finished answer is rendered once: in pieces while it streams, or when it is first looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import translation

from accounts.models import Team, User
from gateway.runtime import Runtime
from playground import markdown, rendered
from playground.models import RenderedTurn, Turn
from playground.transcript import shown_one
from tests.playground.conftest import Serve, begin
from tests.playground.test_chat_views import MESSAGE, browser, events_of

TEXT = "Some *text*\n\n```python\nprint(1)\n```\n\n![](https://a.example/b.png)\n"


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    markdown.neutral.cache_clear()
    yield
    markdown.neutral.cache_clear()


@pytest.fixture
def answer(person: User, team: Team) -> Turn:
    return begin(person, team).answer


def finish(answer: Turn, text: str = TEXT, state: str = Turn.State.DONE) -> Turn:
    Turn.objects.filter(pk=answer.pk).update(state=state, content=text, reasoning="*thought*")
    return Turn.objects.select_related("conversation").get(pk=answer.pk)


def looked_at(answer: Turn) -> tuple[str, str]:
    shown = shown_one(Turn.objects.select_related("conversation").get(pk=answer.pk))
    return shown.html, shown.reasoning_html


@pytest.mark.django_db
def test_what_was_looked_at_is_not_rendered_again_by_any_process(answer: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(answer)
    first = looked_at(answer)
    assert first == (markdown.render(TEXT), "<p><em>thought</em></p>\n")
    markdown.neutral.cache_clear()
    monkeypatch.setattr(markdown, "_html", None)
    assert looked_at(answer) == first


@pytest.mark.django_db
def test_our_words_in_it_are_the_readers(answer: Turn) -> None:
    finish(answer)
    html, _thinking = looked_at(answer)
    assert '<span class="copy-note">Copy</span><span class="copied-note">Copied</span>' in html
    assert '<span class="image-text">image</span>' in html
    with translation.override("zh-hans"):
        html, _thinking = looked_at(answer)
    assert '<span class="copy-note">复制</span>' in html
    assert "image</span>" not in html


@pytest.mark.django_db
def test_no_text_can_name_a_place_of_our_words(answer: Turn) -> None:
    finish(answer, f"a{markdown.COPY}b `c{markdown.IMAGE}d`")
    assert looked_at(answer)[0] == "<p>ab <code>cd</code></p>\n"


@pytest.mark.django_db
def test_another_renderer_makes_it_anew(answer: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(answer)
    looked_at(answer)
    monkeypatch.setattr(rendered, "maker", lambda: "another")
    markdown.neutral.cache_clear()
    monkeypatch.setattr(markdown, "_html", lambda text, env: "<p>made anew</p>")
    assert looked_at(answer)[0] == "<p>made anew</p>"
    assert [kept.maker for kept in RenderedTurn.objects.all()] == ["another"]


@pytest.mark.django_db
@pytest.mark.parametrize("state", [Turn.State.STREAMING, Turn.State.FAILED])
def test_what_may_still_grow_is_not_kept(answer: Turn, state: str) -> None:
    finish(answer, state=state)
    looked_at(answer)
    rendered.keep_whole(answer.pk, rendered.Rendered("<p>half</p>", ""))
    assert not RenderedTurn.objects.exists()


def test_what_streamed_is_kept_in_its_pieces(serve: Serve, person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        message = {"message": "Tell me about tides with code, a table and a formula.", "effort": "low"}
        await client.post("/playground/messages/", MESSAGE | message)
        answer = await Turn.objects.aget(role=Turn.Role.ASSISTANT)
        # Never as a whole.
        monkeypatch.setattr(markdown, "neutral", None)
        await events_of(client, answer)
        await answer.arefresh_from_db()
        kept = await RenderedTurn.objects.aget(pk=answer.pk)
        monkeypatch.undo()
        assert rendered._text(kept.content) == markdown.neutral(answer.content) != ""
        assert rendered._text(kept.reasoning) == markdown.neutral(answer.reasoning) != ""

    serve(scenario)
