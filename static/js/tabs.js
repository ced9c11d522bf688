/** Tabs: [data-tabs] holds a tablist and its panels; arrows move between them. */

function select(tab) {
  const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-tabs] [role=tab]");
  if (tab) select(tab);
});

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest("[data-tabs] [role=tab]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !step) return;
  const tabs = [...tab.parentElement.querySelectorAll("[role=tab]")];
  const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  select(next);
  next.focus();
});
