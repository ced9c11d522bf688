/** Shows a short notice in the corner; errors stay until closed. */
export function toast(text, { error = false } = {}) {
  const box = document.getElementById("toasts");
  const template = document.getElementById("toast-template");
  if (!box || !template) return;
  const item = template.content.firstElementChild.cloneNode(true);
  item.classList.toggle("toast-error", error);
  item.querySelector("[data-toast-text]").textContent = text;
  item.querySelector("[data-toast-close]").addEventListener("click", () => item.remove());
  box.append(item);
  if (!error) setTimeout(() => item.remove(), 4000);
}
