/** Files dropped or pasted anywhere on the page land in a form's file input; [data-drop] shows where. */
export function takeFiles(input, { onTaken }) {
  const zone = input.closest("[data-drop]");
  let depth = 0; // a drag enters and leaves every element it passes

  function take(list) {
    const files = [...list].filter((file) => !input.accept || input.accept.split(",").includes(file.type));
    if (!files.length) return false;
    const taken = new DataTransfer();
    for (const file of input.multiple ? [...input.files, ...files] : files.slice(0, 1)) taken.items.add(file);
    input.files = taken.files;
    onTaken();
    return true;
  }

  function show(change) {
    depth = Math.max(0, depth + change);
    zone.classList.toggle("drop-over", depth > 0);
  }

  document.addEventListener("dragenter", (event) => event.dataTransfer?.types.includes("Files") && show(1));
  document.addEventListener("dragleave", (event) => event.dataTransfer?.types.includes("Files") && show(-1));
  document.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    show(-depth);
    take(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length && take(event.clipboardData.files)) event.preventDefault();
  });
}
