/** The chat page: what HTMX does not do by itself. */
import { begin, refresh, write } from "./composer.js";
import "./copy-code.js";
import "./tabs.js";

const scroller = document.getElementById("chat-scroll");
const texts = document.getElementById("chat-texts").dataset;
const announcer = document.getElementById("announcer");

// -- scrolling: follows the answer only while one is at its end ------------------------------------

const NEAR_PX = 48;
let following = true;
const toEnd = () => !document.getElementById("welcome") && scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });

scroller.addEventListener("scroll", () => {
  following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
});
new ResizeObserver(() => following && toEnd()).observe(document.getElementById("turns"));

// -- a growing answer ------------------------------------------------------------------------------

document.addEventListener("htmx:sseMessage", (event) => {
  const details = event.target.closest(".thinking");
  if (details && event.detail.type.startsWith("thinking") && event.target.textContent) delete details.dataset.unbegun;
});

document.addEventListener("htmx:sseClose", (event) => {
  const answer = event.target.closest("[data-streaming]");
  if (!answer || event.detail.type !== "message") return;
  delete answer.dataset.streaming;
  answer.removeAttribute("aria-busy");
  answer.removeAttribute("sse-connect");
  announcer.textContent = texts.finished;
  refresh();
});

// The browser itself comes back after a broken connection. What it does not come back from is an
// answer that is no stream: then the turn is loaded anew, which never generates anything.
document.addEventListener("htmx:sseError", (event) => {
  const { source } = event.detail;
  const answer = event.target;
  if (source.readyState !== EventSource.CLOSED || !answer.hasAttribute("sse-connect")) return;
  answer.removeAttribute("sse-connect");
  setTimeout(() => window.htmx.ajax("GET", answer.dataset.turnUrl, { target: answer, swap: "outerHTML" }), 1500);
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "turns" && event.detail.requestConfig?.verb === "post") {
    following = true;
    toEnd();
  }
});
document.addEventListener("htmx:afterSettle", refresh);
document.addEventListener("htmx:load", () => {
  openAsPreferred();
  refresh();
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

// -- settings: a column where there is room, else a drawer -------------------------------------------

const wide = window.matchMedia("(min-width: 80.001rem)");
document.addEventListener("click", (event) => {
  if (!wide.matches || !event.target.closest("[popovertarget=chat-settings]")) return;
  event.preventDefault();
  document.getElementById("id_model").focus();
});
wide.addEventListener("change", () => {
  for (const drawer of document.querySelectorAll(".chat-settings:popover-open")) drawer.hidePopover();
});

// -- the rest ---------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const starter = event.target.closest("[data-prompt]");
  if (starter) write(starter.dataset.prompt);
});

document.addEventListener("change", (event) => {
  if (event.target.id === "id_model") document.querySelector("[data-model-name]").textContent = event.target.value;
});

document.addEventListener("htmx:afterRequest", (event) => {
  // A renamed title closes its dialog, which the swap has replaced already.
  if (event.target.matches("#rename-dialog form") && event.detail.successful) event.target.closest("dialog").close();
});

begin();
openAsPreferred();
toEnd();
