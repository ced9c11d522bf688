/** Shortcuts. All of them need a modifier, but Escape and the arrow in an empty message; the sheet lists them. */

const mac = /Mac|iP(hone|ad)/.test(navigator.platform);
for (const key of document.querySelectorAll("kbd[data-mod]")) if (mac) key.textContent = "⌘";

const last = (selector) => [...document.querySelectorAll(selector)].at(-1);
const texts = document.getElementById("chat-texts").dataset;

function search() {
  const sidebar = document.getElementById("sidebar");
  const input = document.getElementById("conversation-search");
  if (!input.checkVisibility()) sidebar.showPopover();
  input.focus();
  input.select();
}

const WITH_CONTROL = {
  "/": () => document.getElementById("shortcuts-dialog").showModal(),
  k: search,
};
const WITH_CONTROL_AND_SHIFT = {
  o: () => window.location.assign(texts.newChat),
  c: () => last(".turn-answer [data-copy-turn]")?.click(),
  ";": () => last(".turn-answer [data-copy-code]")?.click(),
  ":": () => last(".turn-answer [data-copy-code]")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const control = mac ? event.metaKey : event.ctrlKey;
  const key = event.key.toLowerCase();
  let action;
  if (control && !event.altKey) action = (event.shiftKey ? WITH_CONTROL_AND_SHIFT : WITH_CONTROL)[key];
  else if (event.altKey && !control && (event.code === "Comma" || event.code === "Period"))
    action = () => last(`.turn-pager [data-page=${event.code === "Comma" ? "before" : "after"}]`)?.click();
  else if (event.shiftKey && key === "escape") action = () => document.getElementById("id_message").focus();
  if (!action) return;
  event.preventDefault();
  action();
});

document.getElementById("id_message").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowUp" || event.target.value || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
  const edit = last(".turn-user [data-edit]");
  if (!edit) return;
  event.preventDefault();
  edit.click();
});
