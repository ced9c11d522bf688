/** Pictures that wait to be sent are kept in this browser, as typed text is, so that a reload loses neither. */
const STORE = "pictures";
const KEPT_DAYS = 7;

function database() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("tf-drafts", 1);
    opening.addEventListener("upgradeneeded", () => opening.result.createObjectStore(STORE));
    opening.addEventListener("success", () => resolve(opening.result));
    opening.addEventListener("error", () => reject(opening.error));
  });
}

/** `work` makes one request of the store; its result once all is written. */
async function ask(mode, work) {
  const opened = await database();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      transaction.addEventListener("complete", () => resolve(request.result));
      transaction.addEventListener("abort", () => reject(transaction.error));
    });
  } finally {
    opened.close();
  }
}

/** Whether they could be kept: a private window may refuse. */
export async function keepPictures(name, pictures) {
  try {
    await ask("readwrite", (store) => (pictures.length ? store.put({ pictures, keptAt: Date.now() }, name) : store.delete(name)));
    return true;
  } catch {
    return !pictures.length;
  }
}

export async function keptPictures(name) {
  try {
    await forgetOld();
    return (await ask("readonly", (store) => store.get(name)))?.pictures ?? [];
  } catch {
    return [];
  }
}

function forgetOld() {
  const before = Date.now() - KEPT_DAYS * 86_400_000;
  return ask("readwrite", (store) => {
    const walking = store.openCursor();
    walking.addEventListener("success", () => {
      if (!walking.result) return;
      if (walking.result.value.keptAt < before) walking.result.delete();
      walking.result.continue();
    });
    return walking;
  });
}
