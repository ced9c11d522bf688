/** What another tab or device does to this conversation shows here too, without a reload. Looking never generates. */
import { undisturbed } from "./chat-scroll.js";

// Other tabs of this browser say so at once; other devices are asked about, the less often the longer nothing comes.
const SOON_MS = 4_000;
const LATE_MS = 60_000;
const tabs = new BroadcastChannel("tf-chat");
const turns = document.getElementById("turns");
const value = (id) => document.getElementById(id)?.value ?? "";
let pause = SOON_MS;
let timer = 0;
let looking = false;
let gone = ""; // the conversation that was deleted elsewhere

/** Not while an answer grows here, nor under the hands of somebody who writes into the turns. */
function isBusy() {
  if (document.querySelector("[data-streaming], [data-edit-text], #composer.htmx-request")) return true;
  return [...turns.querySelectorAll("textarea")].some((text) => text.value);
}

async function look() {
  const conversation = value("conversation-id");
  if (!conversation || conversation === gone || looking || document.hidden || isBusy()) return;
  looking = true;
  try {
    const known = { mark: value("path-mark"), first: turns.querySelector(".turn")?.id.slice("turn-".length) ?? "", last: value("parent-id") };
    const answer = await fetch(`/playground/c/${conversation}/news/?${new URLSearchParams(known)}`, { headers: { "HX-Request": "true" } });
    if (answer.status === 404) gone = conversation;
    const how = answer.headers.get("HX-Reswap");
    const html = how && (await answer.text());
    if (html && known.mark === value("path-mark") && !isBusy()) show(html, how);
  } catch {
    // No network: the next look tries again.
  } finally {
    looking = false;
  }
}

function show(html, how) {
  pause = SOON_MS;
  const hadFocus = turns.contains(document.activeElement);
  undisturbed(() => window.htmx.swap(turns, html, { swapStyle: how }));
  if (hadFocus && !turns.contains(document.activeElement)) document.getElementById("id_message").focus({ preventScroll: true });
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    pause = Math.min(pause * 1.5, LATE_MS);
    await look();
    later();
  }, pause);
}

function lookNow() {
  pause = SOON_MS;
  look();
  later();
}

// -- this tab tells, the others hear ----------------------------------------------------------------

const CHANGES = /^\/playground\/(messages|compare|c\/[^/]+\/(rename|pin|delete|restore|turns\/\d+\/(again|edit|results|show|delete|restore)))\/$/;
document.addEventListener("htmx:afterRequest", (event) => {
  const { requestConfig, successful } = event.detail;
  if (successful && requestConfig?.verb === "post" && CHANGES.test(requestConfig.path)) tabs.postMessage("changed");
});

tabs.addEventListener("message", () => {
  lookNow();
  const list = document.getElementById("conversations");
  if (!document.hidden && !list.matches(":hover, :focus-within")) window.htmx.trigger("#conversation-search", "refresh");
});

document.addEventListener("visibilitychange", lookNow);
document.addEventListener("tf:answered", lookNow);
for (const name of ["focus", "online"]) window.addEventListener(name, lookNow);
later();
