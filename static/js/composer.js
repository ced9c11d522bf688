/** The message box: grows with its text, sends on Enter, keeps a draft, waits while an answer comes. */

const form = document.getElementById("composer");
const box = document.getElementById("id_message");
const send = form.querySelector("[data-send]");
const stop = form.querySelector("[data-stop]");

export const streaming = () => document.querySelector("[data-streaming]");

// -- draft: one a conversation, so that a typed text survives a reload, a sign-in, an error ----------

const draftKey = () => `tf-draft-${form.dataset.draftKey}`;

function keepDraft() {
  if (box.value.trim()) localStorage.setItem(draftKey(), box.value);
  else localStorage.removeItem(draftKey());
}

export function write(text) {
  box.value = text;
  keepDraft();
  grow();
  box.focus();
  box.setSelectionRange(text.length, text.length);
}

// `field-sizing: content` does this in newer browsers.
const sizesItself = CSS.supports("field-sizing", "content");
function grow() {
  if (sizesItself) return;
  box.rows = Math.min(12, Math.max(1, box.value.split("\n").length));
}

// -- state ----------------------------------------------------------------------------------------

export function refresh() {
  const busy = Boolean(streaming());
  const asking = form.classList.contains("htmx-request");
  send.hidden = busy;
  stop.hidden = !busy;
  send.disabled = asking || !box.value.trim();
}

function stopAnswer() {
  const answer = streaming();
  if (!answer || answer.dataset.stopping) return;
  answer.dataset.stopping = "yes";
  stop.disabled = true;
  window.htmx.ajax("POST", answer.dataset.stopUrl, { source: stop, swap: "none" }).finally(() => {
    stop.disabled = false;
    delete answer.dataset.stopping;
  });
}

// -- events ---------------------------------------------------------------------------------------

box.addEventListener("input", () => {
  keepDraft();
  grow();
  refresh();
});

box.addEventListener("keydown", (event) => {
  // An input method uses Enter to take a candidate; 229 is how Safari reports its last key.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  if (!streaming() && box.value.trim()) form.requestSubmit(send);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || document.querySelector("dialog[open], :popover-open, details.menu[open]")) return;
  stopAnswer();
});

stop.addEventListener("click", stopAnswer);

form.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target !== form) return;
  if (streaming() || !box.value.trim()) {
    event.preventDefault();
    return;
  }
  form.querySelector("#composer-refusal").textContent = "";
  box.readOnly = true;
});

form.addEventListener("htmx:afterRequest", (event) => {
  if (event.target !== form) return;
  box.readOnly = false;
  if (event.detail.successful) {
    localStorage.removeItem(draftKey());
    box.value = "";
    grow();
    form.dataset.draftKey = document.getElementById("conversation-id").value || "new";
    document.getElementById("welcome")?.remove();
  }
  box.focus();
  refresh();
});

export function begin() {
  const kept = localStorage.getItem(draftKey());
  if (kept && !box.value) box.value = kept;
  grow();
  refresh();
}
