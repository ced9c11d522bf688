/** Pictures by drop, paste and picker: made small in the browser, shown, and put into the form as files. */
import { refresh } from "./composer.js";
import { draftKey } from "./draft.js";
import { keepPictures, keptPictures } from "./kept-pictures.js";
import { toast } from "./toast.js";

const MAX_PICTURES = 8;
const MAX_BYTES = 12 * 1024 * 1024;
const LONGEST_EDGE = 2048;
// A screenshot stays sharp as PNG; beyond this size JPEG is the better bargain.
const MAX_PNG_BYTES = 1_500_000;
const THUMBNAIL = 128;

const box = document.querySelector("[data-drop]");
const input = document.getElementById("id_images");
const list = document.getElementById("composer-images");
const form = document.getElementById("composer");
let pictures = []; // { file, thumbnail }
let working = Promise.resolve();

const keep = () => keepPictures(draftKey(form.dataset.draftKey), pictures);
const why = () => document.getElementById("attach").dataset.reason;
const imagesOf = (files) => [...files].filter((file) => file.type.startsWith("image/"));

/** One after the other, so that eight photographs do not fill the memory at once. */
function add(files) {
  const images = imagesOf(files);
  if (!images.length) return;
  if (why()) {
    toast(why(), { error: true });
    return;
  }
  working = working.then(() => images.reduce((before, file) => before.then(() => addOne(file)), Promise.resolve()));
}

async function addOne(file) {
  if (pictures.length >= MAX_PICTURES) {
    toast(box.dataset.tooMany.replace("{max}", MAX_PICTURES), { error: true });
    return;
  }
  let picture;
  try {
    picture = await small(file);
  } catch {
    toast(box.dataset.unreadable.replace("{name}", file.name), { error: true });
    return;
  }
  if (pictures.reduce((sum, one) => sum + one.file.size, picture.file.size) > MAX_BYTES) {
    toast(box.dataset.tooLarge, { error: true });
    return;
  }
  pictures.push(picture);
  show();
  if (!(await keep())) toast(box.dataset.notKept);
}

/** Drawn anew: smaller, and without what a camera writes into its files (place, time, owner). */
async function small(file) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_EDGE / Math.max(image.width, image.height));
  const canvas = drawn(image, Math.max(1, Math.round(image.width * scale)), Math.max(1, Math.round(image.height * scale)));
  const name = (file.name || "picture").replace(/\.\w+$/, "");
  const png = file.type === "image/png" ? await blobOf(canvas, "image/png") : null;
  const blob = png && png.size <= MAX_PNG_BYTES ? png : await blobOf(onWhite(canvas), "image/jpeg", 0.86);
  const side = THUMBNAIL / Math.max(canvas.width, canvas.height);
  const thumbnail = drawn(canvas, Math.max(1, Math.round(canvas.width * side)), Math.max(1, Math.round(canvas.height * side)));
  image.close();
  const ending = blob.type === "image/png" ? "png" : "jpg";
  return { file: new File([blob], `${name}.${ending}`, { type: blob.type }), thumbnail: thumbnail.toDataURL("image/png") };
}

function drawn(source, width, height) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, width, height);
  return canvas;
}

function onWhite(canvas) {
  const context = canvas.getContext("2d");
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  return canvas;
}

const blobOf = (canvas, type, quality) => new Promise((resolve, reject) => {
  canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("not drawn"))), type, quality);
});

function show() {
  const transfer = new DataTransfer();
  for (const { file } of pictures) transfer.items.add(file);
  input.files = transfer.files;
  list.replaceChildren(...pictures.map(item));
  list.hidden = !pictures.length;
  refresh();
}

function item(picture) {
  const entry = document.createElement("li");
  const image = document.createElement("img");
  Object.assign(image, { src: picture.thumbnail, alt: picture.file.name });
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "composer-image-remove", textContent: "×" });
  button.setAttribute("aria-label", list.dataset.remove.replace("{name}", picture.file.name));
  button.addEventListener("click", () => {
    pictures = pictures.filter((one) => one !== picture);
    show();
    keep();
    document.getElementById("id_message").focus();
  });
  entry.append(image, button);
  return entry;
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-attach]")) return;
  if (why()) toast(why());
  else input.click();
});
input.addEventListener("change", () => {
  // The picker replaces what was chosen before; here it adds to it.
  const picked = [...input.files];
  show();
  add(picked);
});
document.getElementById("id_message").addEventListener("paste", (event) => {
  if (!imagesOf(event.clipboardData.files).length) return;
  event.preventDefault();
  add(event.clipboardData.files);
});

const chat = document.querySelector(".chat-main");
const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
chat.addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  box.dataset.over = "";
});
chat.addEventListener("dragleave", (event) => {
  if (!chat.contains(event.relatedTarget)) delete box.dataset.over;
});
chat.addEventListener("drop", (event) => {
  delete box.dataset.over;
  if (!carriesFiles(event)) return;
  event.preventDefault();
  add(event.dataTransfer.files);
});

form.addEventListener("tf:sent", () => {
  pictures = [];
  show();
  keep();
});

working = keptPictures(draftKey(form.dataset.draftKey)).then((kept) => {
  pictures = kept;
  if (kept.length) show();
});
