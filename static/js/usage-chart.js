/**
 * The chart of the usage page: values under the pointer or the focus, arrows from bucket to bucket. Without this file
 * the bars are links with a title, and the table below has the numbers.
 */

const HITS = ".chart-hit";

function textOf(hit) {
  // The title moves into the label, or the browser would show it beside the tip.
  const title = hit.querySelector("title");
  if (title) {
    hit.setAttribute("aria-label", title.textContent.replaceAll("\n", "; "));
    hit.dataset.text = title.textContent;
    title.remove();
  }
  return hit.dataset.text;
}

function show(hit) {
  const frame = hit.closest("[data-chart]");
  const tip = frame.querySelector("[data-chart-tip]");
  const [heading, ...lines] = textOf(hit).split("\n");
  const strong = document.createElement("strong");
  strong.textContent = heading;
  tip.replaceChildren(strong, ...lines.flatMap(pair));
  tip.hidden = false;
  const [bar, box] = [hit.getBoundingClientRect(), frame.getBoundingClientRect()];
  const beside = bar.right + 8 - box.left;
  const fits = beside + tip.offsetWidth <= box.width;
  const left = fits ? beside : bar.left - box.left - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(0, Math.min(left, box.width - tip.offsetWidth))}px`;
}

function pair(line) {
  const at = line.lastIndexOf(": ");
  const [name, value] = [document.createElement("span"), document.createElement("b")];
  name.textContent = line.slice(0, at);
  value.textContent = line.slice(at + 2);
  return [name, value];
}

function hide(event) {
  const frame = event.target.closest?.("[data-chart]");
  if (frame && !frame.contains(event.relatedTarget)) frame.querySelector("[data-chart-tip]").hidden = true;
}

document.addEventListener("pointerover", (event) => {
  const hit = event.target.closest?.(HITS);
  if (hit) show(hit);
});
document.addEventListener("pointerout", hide);
document.addEventListener("focusin", (event) => {
  const hit = event.target.closest?.(HITS);
  if (hit) show(hit);
});
document.addEventListener("focusout", hide);

document.addEventListener("keydown", (event) => {
  const hit = event.target.closest?.(HITS);
  if (!hit) return;
  if (event.key === "Escape") hit.closest("[data-chart]").querySelector("[data-chart-tip]").hidden = true;
  const hits = [...hit.parentNode.querySelectorAll(HITS)];
  const place = hits.indexOf(hit);
  const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: hits.length - 1 }[event.key];
  if (next === undefined || !hits[next]) return;
  event.preventDefault();
  hit.setAttribute("tabindex", "-1");
  hits[next].setAttribute("tabindex", "0");
  hits[next].focus();
});

// A filter that is left at "All" does not belong into the address.
document.addEventListener("htmx:configRequest", (event) => {
  if (!event.target.closest?.("#usage-report")) return;
  for (const [name, value] of [...event.detail.formData]) if (value === "") event.detail.formData.delete(name);
});
