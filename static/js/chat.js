/** The chat and compare pages: what HTMX does not do by itself. */
import "./answers.js";
import { begin, fill, write } from "./composer.js";
import "./context-meter.js";
import "./conversation-list.js";
import "./copy-code.js";
import "./follow.js";
import "./pictures.js";
import "./shortcuts.js";
import "./tabs.js";
import "./turns.js";

// -- settings: a column where there is room, else a drawer -------------------------------------------

const wide = window.matchMedia("(min-width: 80.001rem)");
document.addEventListener("click", (event) => {
  if (!wide.matches || !event.target.closest("[popovertarget=chat-settings]")) return;
  event.preventDefault();
  document.querySelector("#chat-settings select").focus();
});
wide.addEventListener("change", () => {
  for (const drawer of document.querySelectorAll(".chat-settings:popover-open")) drawer.hidePopover();
});

document.addEventListener("change", (event) => {
  if (event.target.id === "id_model") document.querySelector("[data-model-name]").textContent = event.target.value;
});

// -- starters, examples ------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const starter = event.target.closest("[data-prompt]");
  if (starter) {
    for (const [id, value] of Object.entries(JSON.parse(starter.dataset.settings || "{}"))) fill(`#${id}`, value);
    write(starter.dataset.prompt);
  }
  const filler = event.target.closest("[data-fill]");
  if (filler) fill(filler.dataset.fill, filler.dataset.text);
});

// -- dialogs -----------------------------------------------------------------------------------------

document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.matches("[data-closes-when-done]") && event.detail.successful) event.target.closest("dialog").close();
});

begin();
