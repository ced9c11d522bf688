/** A typed text survives a reload, a sign-in or an error: kept in this browser, for its writer, until it is emptied. */
export const draftKey = (name) => `tf-draft-${document.body.dataset.person ?? ""}-${name}`;

export function keepDraft(box, name) {
  if (box.value.trim()) localStorage.setItem(draftKey(name), box.value);
  else localStorage.removeItem(draftKey(name));
}

export function restoreDraft(box, name) {
  const kept = localStorage.getItem(draftKey(name));
  if (kept && !box.value) box.value = kept;
}
