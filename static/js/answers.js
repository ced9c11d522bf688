/** A growing answer: its thinking, its end, and a stream that broke. */
import { isGrowing, refresh } from "./composer.js";

const texts = document.getElementById("chat-texts").dataset;

document.addEventListener("htmx:sseMessage", (event) => {
  const name = event.detail.type;
  if (name.startsWith("thinking") && event.target.textContent) {
    const details = event.target.closest(".thinking");
    if (details) delete details.dataset.unbegun;
  }
  const answer = event.target.closest("[data-streaming]:not([data-begun])");
  if (answer && event.detail.data) answer.dataset.begun = "";
  if (name.startsWith("foot-")) finish(event.target.closest("[data-streaming]"));
});

function finish(answer) {
  if (!answer) return;
  delete answer.dataset.streaming;
  answer.removeAttribute("aria-busy");
  if (!document.querySelector("[data-streaming]")) document.getElementById("announcer").textContent = texts.finished;
  refresh();
  document.dispatchEvent(new CustomEvent("tf:answered"));
}

// The server says that nothing more comes: the stream must not be opened again.
document.addEventListener("htmx:sseClose", (event) => {
  if (event.detail.type === "message") event.target.removeAttribute("sse-connect");
});

// The browser itself comes back after a broken connection. What it does not come back from is an
// answer that is no stream: then the turn is loaded anew, which never generates anything.
document.addEventListener("htmx:sseError", (event) => {
  const { source } = event.detail;
  const element = event.target;
  if (source.readyState !== EventSource.CLOSED || !element.hasAttribute("sse-connect")) return;
  element.removeAttribute("sse-connect");
  const { turnUrl } = element.dataset;
  setTimeout(() => (turnUrl ? window.htmx.ajax("GET", turnUrl, { target: element, swap: "outerHTML" }) : window.location.reload()), 1500);
});

// -- thinking stays as one likes it -----------------------------------------------------------------

const THINKING = "tf-thinking-open";
function openAsPreferred() {
  if (localStorage.getItem(THINKING) !== "yes") return;
  for (const details of document.querySelectorAll(".turn[data-streaming] .thinking:not([open])")) details.open = true;
}
document.addEventListener("click", (event) => {
  const details = event.target.closest(".thinking > summary")?.parentElement;
  if (details) localStorage.setItem(THINKING, details.open ? "no" : "yes");
});
document.addEventListener("htmx:load", (event) => isGrowing(event) || openAsPreferred());
openAsPreferred();
