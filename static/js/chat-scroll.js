/** The scrolling part of the chat: it follows an answer only while one is at its end. */

const NEAR_PX = 48;
const scroller = document.getElementById("chat-scroll");
const turns = document.getElementById("turns");
let following = !turns.classList.contains("compare");

export function toEnd() {
  following = true;
  if (!document.getElementById("welcome")) scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
}

export const toTop = () => {
  following = false;
  scroller.scrollTo({ top: 0, behavior: "instant" });
};

/** Run a change of the turns and leave this element where it is on the screen. */
export function keepPlace(top, element) {
  following = false;
  if (element) scroller.scrollBy({ top: element.getBoundingClientRect().top - top, behavior: "instant" });
}

/** Run a change that comes unasked: at the end one stays at the end, else what one reads stays where it is. */
export function undisturbed(change) {
  const top = scroller.getBoundingClientRect().top;
  const read = following ? null : [...turns.children].find((child) => child.getBoundingClientRect().bottom > top);
  const before = read?.getBoundingClientRect().top;
  change();
  if (read) keepPlace(before, read.isConnected ? read : document.getElementById(read.id));
}

scroller.addEventListener("scroll", () => {
  following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
});
new ResizeObserver(() => {
  if (following && !turns.classList.contains("compare")) toEnd();
}).observe(turns);

if (following) toEnd();

// -- earlier messages come when one scrolls up to them ---------------------------------------------

const upwards = new IntersectionObserver((entries) => {
  // Short messages may leave room above them; otherwise one scrolls up to the button first.
  const wanted = scroller.scrollTop > 0 || scroller.scrollHeight <= scroller.clientHeight;
  for (const { isIntersecting, target } of entries) if (isIntersecting && wanted) target.click();
}, { root: scroller, rootMargin: "200px 0px 0px" });

function watch() {
  upwards.disconnect();
  const button = turns.querySelector(".chat-earlier");
  if (button) upwards.observe(button);
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.target.matches(".chat-earlier")) return;
  // Where the browser keeps no anchor of its own.
  const { scrollHeight, scrollTop } = scroller;
  requestAnimationFrame(() => {
    if (scroller.scrollTop === scrollTop) scroller.scrollTop += scroller.scrollHeight - scrollHeight;
  });
});
document.addEventListener("htmx:afterSettle", (event) => event.target.closest?.(".answer") || watch());
watch();
