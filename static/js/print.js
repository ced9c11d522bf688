/** [data-print] opens the browser's print dialogue, which also makes a PDF. */
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) window.print();
});
