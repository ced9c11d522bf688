/** What every page does: theme, menus, copying, confirming, and telling when HTMX could not load something. */
import { csrfToken } from "./csrf.js";
import { toast } from "./toast.js";

const root = document.documentElement;
const texts = document.getElementById("page-texts").dataset;

// -- theme: the server reads the cookie, so a page is never painted in the wrong one --------------

function showTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === theme));
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-theme-choice]");
  if (!button) return;
  const theme = button.dataset.themeChoice;
  document.cookie = `tf_theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  showTheme(theme);
});
showTheme(root.dataset.theme ?? "auto");

// -- tabs that are wider than the window show the current one ---------------------------------------

for (const tab of document.querySelectorAll(".tabs > [aria-current]")) {
  tab.scrollIntoView({ block: "nearest", inline: "center" });
}

// -- menus close on Escape, on a click elsewhere, and once something of them is done ----------------

document.addEventListener("click", (event) => {
  const done = event.target.closest("details.menu .menu-item:is([data-opens], [hx-post], [download])");
  if (done) {
    const menu = done.closest("details.menu");
    menu.open = false;
    // Where the keyboard is again once a dialog has closed.
    menu.querySelector("summary").focus();
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// -- copy: data-copy="text", or data-copy-from="#id of the element holding it" ---------------------

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const text = button.dataset.copy ?? document.querySelector(button.dataset.copyFrom)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    toast(texts.copyFailed, { error: true });
    return;
  }
  button.dataset.copied = "";
  document.getElementById("announcer").textContent = texts.copied;
  setTimeout(() => delete button.dataset.copied, 1600);
});

// -- confirm: data-confirm on a form, hx-confirm on an HTMX element --------------------------------

const dialog = document.getElementById("confirm-dialog");

function ask(question, source) {
  dialog.querySelector("[data-confirm-text]").textContent = question;
  const yes = dialog.querySelector("[value=yes]");
  yes.textContent = source.dataset.confirmAction ?? yes.dataset.text;
  yes.classList.toggle("button-danger", "confirmDanger" in source.dataset);
  yes.classList.toggle("button-primary", !("confirmDanger" in source.dataset));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

const confirmed = new WeakSet();
document.addEventListener(
  "submit",
  async (event) => {
    const form = event.target;
    if (!form.matches("form[data-confirm]") || confirmed.delete(form)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const submitter = event.submitter;
    if (await ask(form.dataset.confirm, form)) {
      confirmed.add(form);
      form.requestSubmit(submitter);
    }
  },
  true,
);
document.addEventListener("htmx:confirm", (event) => {
  if (!event.detail.question) return;
  event.preventDefault();
  ask(event.detail.question, event.target).then((yes) => yes && event.detail.issueRequest(true));
});

// -- dialogs: data-opens="#id", and data-closes inside one -----------------------------------------

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) document.querySelector(opener.dataset.opens)?.showModal();
  event.target.closest("[data-closes]")?.closest("dialog")?.close();
  if (event.target.matches("dialog.dialog")) event.target.close(); // the backdrop
});

// -- HTMX ------------------------------------------------------------------------------------------

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-CSRFToken"] = csrfToken();
});
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  const known = { 403: texts.forbidden, 404: texts.notFound, 413: texts.tooLarge };
  toast(known[status] ?? texts.serverError.replace("{status}", status), { error: true });
});
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, () => toast(texts.unreachable, { error: true }));
}
