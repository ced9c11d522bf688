/** The list of conversations: each row's actions, and what was deleted can be had back. */
import { isGrowing } from "./composer.js";
import { toast } from "./toast.js";

const texts = document.getElementById("chat-texts").dataset;
const list = document.getElementById("conversations").parentElement;
const actions = document.getElementById("row-actions").content.firstElementChild;
const UNDO = "tf-undo";

// -- a row's actions come when it is pointed at or reached by keyboard: thirty rows need not carry them all ----

function equip(row) {
  if (!row || row.querySelector(".chat-list-actions")) return;
  const made = actions.cloneNode(true);
  const title = row.querySelector("a").title;
  for (const button of made.children) {
    const label = ("pinned" in row.dataset && button.dataset.labelPinned) || button.dataset.label;
    button.setAttribute("aria-label", label.replace("{title}", title));
    button.title = label.replace("{title}", "").trim();
  }
  row.append(made);
}

const equipCurrent = () => equip(list.querySelector(".chat-list-row[data-current]"));
list.addEventListener("pointerover", (event) => equip(event.target.closest(".chat-list-row")));
list.addEventListener("focusin", (event) => equip(event.target.closest(".chat-list-row")));
document.addEventListener("htmx:afterSettle", (event) => isGrowing(event) || equipCurrent());
equipCurrent();

list.addEventListener("click", (event) => {
  const button = event.target.closest("[data-row]");
  if (!button) return;
  const id = button.closest(".chat-list-row").querySelector("a").href.match(/[0-9a-f-]{36}/)[0];
  const url = `/playground/c/${id}/${button.dataset.row}/`;
  if (button.dataset.row === "rename") {
    window.htmx.ajax("GET", url, { target: "#rename-dialog", swap: "innerHTML" }).then(() => document.getElementById("rename-dialog").showModal());
  } else {
    // Not the button's: a search that answers meanwhile takes the row away, and what comes back would find no page.
    window.htmx.ajax("POST", url, { source: list, swap: "none", values: { q: document.getElementById("conversation-search").value } });
  }
});

// -- undo ------------------------------------------------------------------------------------------------------

function offer({ text, url, back }) {
  const shown = toast(text, {
    seconds: 10,
    action: {
      label: texts.undo,
      run: async () => {
        const turn = url.includes("/turns/");
        await window.htmx.ajax("POST", url, turn ? { target: "#turns", swap: "innerHTML" } : { target: "#conversations", swap: "none" });
        if (back) window.location.assign(back);
      },
    },
  });
  // The button that deleted went with what it deleted: the keyboard is at Undo, not nowhere.
  setTimeout(() => {
    if (!document.activeElement || document.activeElement === document.body) shown?.querySelector(".toast-action").focus();
  }, 300);
}

document.addEventListener("undoable", (event) => {
  const { text, url } = event.detail;
  const conversation = url.match(/\/c\/([0-9a-f-]{36})\/restore\/$/)?.[1];
  if (!conversation || !window.location.pathname.includes(conversation)) {
    offer({ text, url });
    return;
  }
  // Its page is left; the next one offers to have it back.
  sessionStorage.setItem(UNDO, JSON.stringify({ text, url, back: window.location.pathname }));
  window.location.assign(texts.newChat);
});

const waiting = sessionStorage.getItem(UNDO);
if (waiting) {
  sessionStorage.removeItem(UNDO);
  offer(JSON.parse(waiting));
}
