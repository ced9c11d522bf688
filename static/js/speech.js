/** The speech page: what a text will cost, exactly, while it is typed; and a player that waits where it must. */
import "./copy-code.js";
import "./tabs.js";
import { keepDraft, restoreDraft } from "./draft.js";

const form = document.getElementById("speak");

if (form) {
  const text = document.getElementById("text");
  const model = document.getElementById("model");
  const count = form.querySelector("[data-count]");
  const number = new Intl.NumberFormat(document.documentElement.lang);
  const POINT = 10n ** 12n;

  /** Picopoints as points, without idle zeros. */
  function points(amount) {
    const fraction = String(amount % POINT).padStart(12, "0").replace(/0+$/, "");
    return `${amount / POINT}${fraction && "."}${fraction}`;
  }

  function refresh() {
    const { limit, pricePpt } = model.selectedOptions[0].dataset;
    // Code points, as they are charged; `length` would count an emoji twice.
    const characters = [...text.value].length;
    count.querySelector("[data-characters]").textContent = number.format(characters);
    count.querySelector("[data-limit]").textContent = number.format(Number(limit));
    count.querySelector("[data-points]").textContent = pricePpt ? points(BigInt(characters) * BigInt(pricePpt)) : count.dataset.unpriced;
    const over = characters > Number(limit);
    count.classList.toggle("over", over);
    text.setAttribute("aria-invalid", String(over));
    document.getElementById("speak-button").disabled = over || !text.value.trim();
  }

  restoreDraft(text, "speech");
  text.addEventListener("input", () => {
    keepDraft(text, "speech");
    refresh();
  });
  model.addEventListener("change", refresh);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) form.requestSubmit();
  });
  document.addEventListener("click", (event) => {
    const sample = event.target.closest("[data-text]");
    if (!sample) return;
    text.value = sample.dataset.text;
    keepDraft(text, "speech");
    refresh();
    text.focus();
  });
  form.addEventListener("htmx:afterRequest", refresh);
  refresh();
}

// On a narrow window the answer stands below the form.
document.addEventListener("htmx:afterSwap", (event) => event.target.id === "spoken" && event.target.scrollIntoView({ block: "nearest" }));

// A browser that cannot play sound while it is still being made gets it again when it is whole.
document.addEventListener("error", (event) => event.target.id === "sound" && (event.target.dataset.failed = ""), true);
document.addEventListener("htmx:afterSwap", () => {
  const sound = document.getElementById("sound");
  if (sound?.dataset.failed === undefined || !document.querySelector("[data-complete]")) return;
  delete sound.dataset.failed;
  sound.load();
});
