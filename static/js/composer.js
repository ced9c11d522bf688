/** The message box: grows with its text, sends on Enter, keeps a draft, waits while an answer comes. */

import { keepDraft, restoreDraft } from "./draft.js";

const form = document.getElementById("composer");
const box = document.getElementById("id_message");
const send = form.querySelector("[data-send]");
const stop = form.querySelector("[data-stop]");
const files = document.getElementById("id_images");

const streaming = () => [...document.querySelectorAll("[data-streaming]")];
const hasSomething = () => box.value.trim() || files.files.length;

// -- draft: one a conversation, so that a typed text survives a reload, a sign-in, an error ----------

const draftName = () => form.dataset.draftKey;

export function write(text) {
  box.value = text;
  changed();
  box.focus();
  box.setSelectionRange(text.length, text.length);
}

/** Fill a field of the settings as if it had been typed. */
export function fill(selector, text) {
  const field = document.querySelector(selector);
  if (!field || field.disabled) return;
  if (field.id === "id_tools") text = JSON.stringify(JSON.parse(text), null, 2);
  field.value = text;
  const group = field.closest("details");
  if (group) group.open = true;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

// `field-sizing: content` does this in newer browsers.
const sizesItself = CSS.supports("field-sizing", "content");
function grow() {
  if (sizesItself) return;
  box.rows = Math.min(12, Math.max(1, box.value.split("\n").length));
}

function changed() {
  keepDraft(box, draftName());
  grow();
  refresh();
}

// -- state ----------------------------------------------------------------------------------------

export function refresh() {
  const busy = streaming().length > 0;
  const asking = form.classList.contains("htmx-request");
  send.hidden = busy;
  stop.hidden = !busy;
  send.disabled = asking || !hasSomething();
  document.dispatchEvent(new CustomEvent("tf:composed"));
}

async function stopAnswers() {
  const answers = streaming().filter((answer) => !answer.dataset.stopping);
  stop.disabled = answers.length > 0;
  for (const answer of answers) answer.dataset.stopping = "yes";
  await Promise.allSettled(answers.map((answer) => window.htmx.ajax("POST", answer.dataset.stopUrl, { source: answer, swap: "none" })));
  for (const answer of answers) delete answer.dataset.stopping;
  stop.disabled = false;
}

// -- events ---------------------------------------------------------------------------------------

box.addEventListener("input", changed);
files.addEventListener("change", refresh);

box.addEventListener("keydown", (event) => {
  // An input method uses Enter to take a candidate; 229 is how Safari reports its last key.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  if (!streaming().length && hasSomething()) form.requestSubmit(send);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || event.shiftKey) return;
  if (document.querySelector("dialog[open], :popover-open, details.menu[open]")) return;
  stopAnswers();
});

stop.addEventListener("click", stopAnswers);

form.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target !== form) return;
  if (streaming().length || !hasSomething()) {
    event.preventDefault();
    return;
  }
  form.querySelector("#composer-refusal").textContent = "";
  box.readOnly = true;
});

form.addEventListener("htmx:afterRequest", (event) => {
  if (event.target !== form) return;
  box.readOnly = false;
  // A refusal (422) is swapped in, and so no failure to HTMX: what was typed stays.
  if (event.detail.successful && event.detail.xhr.status < 400) {
    box.value = "";
    keepDraft(box, draftName());
    grow();
    form.dispatchEvent(new CustomEvent("tf:sent"));
    const conversation = document.getElementById("conversation-id");
    if (conversation) form.dataset.draftKey = conversation.value || "new";
  }
  box.focus();
  refresh();
});

/** A piece of an answer that grows: it comes ten times a second, and nothing else of the page changes with it. */
export const isGrowing = (event) => Boolean(event.target.closest?.(".turn[data-streaming] :is(.answer, .calls)"));

for (const name of ["htmx:afterSettle", "htmx:load"]) {
  document.addEventListener(name, (event) => isGrowing(event) || refresh());
}

export function begin() {
  restoreDraft(box, draftName());
  grow();
  refresh();
}
