/** How much of the model's window is used: what the last answer counted, and an estimate of what came since. */

import { isGrowing } from "./composer.js";

const meter = document.getElementById("context-meter");
const box = document.getElementById("id_message");
const PICTURE_TOKENS = 300;

// A token is about four letters, or one ideograph.
const IDEOGRAPHS = /[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]/g;
function tokensOf(text) {
  const ideographs = text.match(IDEOGRAPHS)?.length ?? 0;
  return ideographs + Math.ceil((text.length - ideographs) / 4);
}

function used() {
  let tokens = 0;
  for (const turn of [...document.querySelectorAll("#turns > .turn")].reverse()) {
    const counted = turn.querySelector("[data-context-tokens]")?.dataset.contextTokens;
    if (counted !== undefined) {
      tokens += Number(counted);
      break;
    }
    tokens += tokensOf(turn.querySelector(".turn-bubble, .answer:not(.thinking-text)")?.textContent ?? "");
    tokens += turn.querySelectorAll(".turn-images img").length * PICTURE_TOKENS;
  }
  const pictures = document.getElementById("id_images").files.length;
  return tokens + tokensOf(box.value) + pictures * PICTURE_TOKENS;
}

const short = new Intl.NumberFormat(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 1 });
const long = new Intl.NumberFormat(document.documentElement.lang);

function show() {
  const window_ = Number(document.getElementById("model-controls")?.dataset.window ?? 0);
  const tokens = used();
  meter.hidden = !window_ || !tokens;
  if (meter.hidden) return;
  const share = tokens / window_;
  meter.querySelector("meter").value = Math.min(1, share);
  meter.dataset.state = share > 1 ? "full" : share > 0.8 ? "high" : "";
  meter.querySelector("[data-context-text]").textContent = `${short.format(tokens)} / ${short.format(window_)}`;
  const text = share > 1 ? meter.dataset.full : meter.dataset.title;
  meter.title = text.replace("{used}", long.format(tokens)).replace("{window}", long.format(window_));
}

let waiting = 0;
function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(show, 120);
}

if (meter) {
  document.addEventListener("tf:composed", soon);
  document.addEventListener("htmx:afterSettle", (event) => isGrowing(event) || soon());
  show();
}
