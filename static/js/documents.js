/** The documents page: a file that is dropped is sent at once; its text is copied whole. */
import "./copy-code.js";
import "./tabs.js";
import { takeFiles } from "./file-drop.js";
import { toast } from "./toast.js";

const form = document.getElementById("upload");
if (form) {
  const input = document.getElementById("file");
  const bar = document.getElementById("upload-progress");
  const read = document.getElementById("read");
  const showName = () => (document.getElementById("file-names").textContent = [...input.files].map((file) => file.name).join(", "));
  input.addEventListener("change", () => {
    showName();
    if (input.files.length) read.focus();
  });
  takeFiles(input, {
    onTaken: () => {
      showName();
      form.requestSubmit(read);
    },
  });
  form.addEventListener("htmx:xhr:progress", (event) => {
    if (!event.detail.lengthComputable) return;
    bar.hidden = false;
    bar.value = event.detail.loaded / event.detail.total;
  });
  form.addEventListener("htmx:beforeRequest", (event) => {
    document.getElementById("problem").replaceChildren();
    if (event.target !== form || event.detail.requestConfig.triggeringEvent?.submitter?.id === "sample") return;
    // The server would say the same once all of it had been sent.
    if ([...input.files].every((file) => file.size <= Number(input.dataset.limitBytes))) return;
    event.preventDefault();
    toast(input.dataset.tooLarge, { error: true });
  });
  form.addEventListener("htmx:afterRequest", () => (bar.hidden = true));
}

// The text is fetched when it is asked for: a page need not hold a long document twice.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy-url]");
  if (!button) return;
  const texts = document.getElementById("page-texts").dataset;
  const text = fetch(button.dataset.copyUrl).then((answer) => {
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.blob();
  });
  try {
    // Given as a promise: some browsers allow copying only while the click is being handled.
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": text.then((blob) => new Blob([blob], { type: "text/plain" })) })]);
  } catch {
    toast(texts.copyFailed, { error: true });
    return;
  }
  button.dataset.copied = "";
  document.getElementById("announcer").textContent = texts.copied;
  setTimeout(() => delete button.dataset.copied, 1600);
});
