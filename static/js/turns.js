/** The turns: alternatives keep their place on the screen, questions scroll to their answers, editing. */
import { keepPlace, toEnd, toTop } from "./chat-scroll.js";
import { isGrowing, refresh } from "./composer.js";

const turns = document.getElementById("turns");

// -- what a swap of the turns does to the reader's place --------------------------------------------

let kept = null; // { ids, top, page } of the turn whose alternative, or whose neighbour, comes in its place
let toFocus = null;

document.addEventListener("htmx:beforeRequest", (event) => {
  const button = event.target.closest("[data-shows], [data-keeps-place]");
  if (!button) return;
  const article = button.closest("article");
  const ids = [button.dataset.shows && `turn-${button.dataset.shows}`, article.id, article.previousElementSibling?.id];
  kept = { ids: ids.filter(Boolean), top: article.getBoundingClientRect().top, page: button.dataset.page };
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target !== turns || event.detail.requestConfig?.verb !== "post") return;
  document.getElementById("welcome")?.remove();
  if (kept) {
    const article = kept.ids.map((id) => document.getElementById(id)).find(Boolean);
    keepPlace(kept.top, article);
    toFocus = { article, page: kept.page };
    kept = null;
  } else if (turns.classList.contains("compare")) toTop();
  else toEnd();
  refresh();
});

// Not before: until it has settled HTMX does not know the new buttons.
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target !== turns || !toFocus) return;
  focusAgain(toFocus.article, toFocus.page);
  toFocus = null;
});

/** The button that was pressed is gone with its turn: its successor takes the keyboard. */
function focusAgain(article, page) {
  const buttons = page && article ? [...article.querySelectorAll("[data-page]")] : [];
  const next = buttons.find((button) => button.dataset.page === page && !button.disabled) ?? buttons.find((button) => !button.disabled);
  (next ?? document.getElementById("id_message")).focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  const pager = event.target.closest?.(".turn-pager");
  const page = { ArrowLeft: "before", ArrowRight: "after" }[event.key];
  if (pager && page) pager.querySelector(`[data-page=${page}]`).click();
});

// -- while an answer is written nothing else is asked ------------------------------------------------

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.closest("[data-asks]") && document.querySelector("[data-streaming]")) {
    event.preventDefault();
    document.querySelector("[data-stop]").focus();
  }
});

// -- editing -----------------------------------------------------------------------------------------

document.addEventListener("htmx:afterSettle", (event) => {
  if (isGrowing(event)) return;
  const text = document.querySelector("[data-edit-text]:not([data-ready])");
  if (!text) return;
  text.dataset.ready = "";
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
});

document.addEventListener("keydown", (event) => {
  const text = event.target.closest?.("[data-edit-text]");
  if (!text || event.isComposing || event.keyCode === 229) return;
  if (event.key === "Escape") {
    event.stopPropagation();
    text.form.querySelector("[data-cancel-edit]").click();
    document.getElementById("id_message").focus();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    text.form.requestSubmit();
  }
});
