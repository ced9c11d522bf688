/** The decisions page: building questions, and pictures and videos that go with the state. */
import "./copy-code.js";
import "./tabs.js";
import { keepDraft, restoreDraft } from "./draft.js";
import { takeFiles } from "./file-drop.js";

const form = document.getElementById("decide");

// -- questions -------------------------------------------------------------------------------------

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-kind-of-question]")) return;
  event.target.closest("[data-question]").dataset.kind = event.target.value;
});

function addRow(button) {
  const rows = button.parentElement.querySelector("[data-rows]");
  const row = rows.lastElementChild.cloneNode(true);
  for (const input of row.querySelectorAll("input")) input.value = "";
  rows.append(row);
  row.querySelector("input").focus();
}

function remove(button) {
  const item = button.closest(button.dataset.remove);
  const beside = item.nextElementSibling ?? item.previousElementSibling;
  if (item.matches("[data-row]") && !beside) {
    // The last row is what the next one is made of.
    for (const input of item.querySelectorAll("input")) input.value = "";
    item.querySelector("input").focus();
    return;
  }
  item.remove();
  (beside ?? document.getElementById("questions").nextElementSibling)?.querySelector("input:not([type=hidden]), button")?.focus();
}

document.addEventListener("click", (event) => {
  const add = event.target.closest("[data-add-row]");
  if (add) addRow(add);
  const gone = event.target.closest("[data-remove]");
  if (gone) remove(gone);
});

// Enter in an option or level goes on to the next one, as in a list; it does not send the form.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  if (event.ctrlKey || event.metaKey) {
    if (event.target.closest("#decide")) form.requestSubmit();
    return;
  }
  const row = event.target.closest?.("[data-row]");
  if (!row || !event.target.matches("input")) return;
  event.preventDefault();
  const next = row.nextElementSibling;
  if (next) next.querySelector("input").focus();
  else addRow(row.closest(".question-part").querySelector("[data-add-row]"));
});

// On a narrow window the answer stands below the form.
document.addEventListener("htmx:afterSwap", (event) => event.target.id === "decided" && event.target.scrollIntoView({ block: "nearest" }));

// -- the state, its pictures and videos --------------------------------------------------------------------

if (form) {
  const state = document.getElementById("state");
  restoreDraft(state, "decision");
  state.addEventListener("input", () => keepDraft(state, "decision"));

  const images = document.getElementById("images");
  if (images) {
    const thumbs = document.getElementById("thumbs");
    const videoOf = (file) => {
      const video = document.createElement("video");
      video.src = URL.createObjectURL(file);
      video.controls = true;
      video.preload = "metadata";
      video.setAttribute("aria-label", file.name);
      video.dataset.new = "";
      return video;
    };
    const show = () => {
      document.getElementById("attached").value = [...images.files].map((file) => file.type).join(",");
      for (const old of thumbs.querySelectorAll("[data-new]")) {
        if (old.matches("video")) URL.revokeObjectURL(old.src);
        old.remove();
      }
      for (const file of images.files) {
        if (file.type.startsWith("video/")) {
          thumbs.append(videoOf(file));
          continue;
        }
        const reader = new FileReader();
        reader.addEventListener("load", () => {
          const picture = document.createElement("img");
          picture.src = reader.result;
          picture.alt = file.name;
          picture.className = "thumb";
          picture.dataset.new = "";
          thumbs.append(picture);
        });
        reader.readAsDataURL(file);
      }
    };
    images.addEventListener("change", show);
    takeFiles(images, { onTaken: show });
  }
}
