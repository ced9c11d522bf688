/** Shows a short notice in the corner; errors stay until closed. An action is a button beside the text. */
export function toast(text, { error = false, seconds = 4, action = null } = {}) {
  const box = document.getElementById("toasts");
  const template = document.getElementById("toast-template");
  if (!box || !template) return null;
  const item = template.content.firstElementChild.cloneNode(true);
  item.classList.toggle("toast-error", error);
  item.querySelector("[data-toast-text]").textContent = text;
  item.querySelector("[data-toast-close]").addEventListener("click", () => item.remove());
  if (action) item.querySelector("[data-toast-close]").before(actionButton(action, item));
  box.append(item);
  if (!error) setTimeout(() => leave(item), seconds * 1000);
  return item;
}

/** Not under the reader's pointer or keyboard. */
function leave(item) {
  if (item.matches(":hover, :focus-within")) setTimeout(() => leave(item), 1500);
  else item.remove();
}

function actionButton({ label, run }, item) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "toast-action", textContent: label });
  button.addEventListener("click", () => {
    item.remove();
    run();
  });
  return button;
}
