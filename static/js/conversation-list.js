/** The list of conversations: what was deleted can be had back, and a page whose conversation is gone is left. */
import { toast } from "./toast.js";

const texts = document.getElementById("chat-texts").dataset;
const UNDO = "tf-undo";

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
