/** The copy button of a code block: [data-copy-code] copies the code it stands over. */
import { toast } from "./toast.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy-code]");
  if (!button) return;
  const texts = document.getElementById("page-texts").dataset;
  try {
    await navigator.clipboard.writeText(button.closest(".code").querySelector("pre").textContent);
  } catch {
    toast(texts.copyFailed, { error: true });
    return;
  }
  button.dataset.copied = "";
  document.getElementById("announcer").textContent = texts.copied;
  setTimeout(() => delete button.dataset.copied, 1600);
});
