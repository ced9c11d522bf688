/** A typed text survives a reload, a sign-in or an error: kept in this browser until it is emptied. */
const keyOf = (name) => `tf-draft-${name}`;

export function keepDraft(box, name) {
  if (box.value.trim()) localStorage.setItem(keyOf(name), box.value);
  else localStorage.removeItem(keyOf(name));
}

export function restoreDraft(box, name) {
  const kept = localStorage.getItem(keyOf(name));
  if (kept && !box.value) box.value = kept;
}
