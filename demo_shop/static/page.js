/**
 * What the server tells the page through <body>, and the two places for messages: a form's status line and the toasts.
 */

const { account = "", protection = "1", doubleClick = "0" } = document.body.dataset;

/** Whose page it is; empty if nobody is signed in. */
export const ACCOUNT = account;
/** The lab has switched protection off: behave like a client without keys. */
export const CARELESS = protection === "0";
/** The lab simulates a double click on every payment. */
export const DOUBLE_CLICK = doubleClick === "1";

/** @typedef {"busy" | "good" | "bad" | "limit"} Tone */

/**
 * Show a message in a status line. It is a live region, so screen readers announce it.
 * @param {Element | null} line
 * @param {string} text
 * @param {Tone} tone
 * @param {string} [reference]
 */
export function say(line, text, tone, reference = "") {
  if (!line) return;
  line.className = `status status-${tone}`;
  line.replaceChildren(element("span", { className: "status-text" }, text));
  if (reference) line.append(" ", element("span", { className: "status-reference" }, "Reference ", code(reference)));
  line.scrollIntoView({ block: "nearest" });
}

/** Milliseconds that good news stays; longer where there is something to click. */
const STAY = 6_000;
const STAY_TO_CLICK = 12_000;

let fading = 0;

/**
 * Show a message at the edge of the page, if no form is near. It can be closed. Good news disappears by itself, unless
 * it has the pointer or the focus; a message with a reference stays until it is closed.
 * @param {string} text
 * @param {Tone} tone
 * @param {{url?: string, label?: string, reference?: string, again?: () => void}} [more] where to look, what to do again
 */
export function toast(text, tone, { url = "", label = "", reference = "", again } = {}) {
  const place = document.querySelector("[data-toast]");
  if (!place) return;
  clearTimeout(fading);
  const parts = [element("p", { className: `toast toast-${tone}` }, text)];
  if (reference) parts[0].append(" Reference ", code(reference));
  if (url) parts[0].append(" ", element("a", { href: url }, label));
  if (again) parts[0].append(" ", element("button", { type: "button", className: "plain", onclick: again }, "Try again"));
  parts[0].append(closer(place));
  place.replaceChildren(...parts);
  if (tone === "good" && !reference) fade(place, url ? STAY_TO_CLICK : STAY);
}

/** @param {Element} place @param {number} stay milliseconds */
function fade(place, stay) {
  fading = setTimeout(() => {
    if (place.querySelector(":hover, :focus")) fade(place, stay);
    else place.replaceChildren();
  }, stay);
}

/** The button that closes a toast and moves the focus to the page's content. @param {Element} place */
function closer(place) {
  const button = element("button", { type: "button", className: "toast-close", ariaLabel: "Close this message" }, "×");
  button.addEventListener("click", () => {
    place.replaceChildren();
    document.querySelector("main")?.focus({ preventScroll: true });
  });
  return button;
}

const NEWS = "teapot.news";

/** Keep a message for the next page. @param {string} text */
export function keepForNextPage(text) {
  try {
    sessionStorage.setItem(NEWS, text);
  } catch {
    // without storage, the message is shown on this page only
  }
}

/** The message that the last page left for this one; empty if there is none. */
export function saidBefore() {
  try {
    const text = sessionStorage.getItem(NEWS) ?? "";
    sessionStorage.removeItem(NEWS);
    return text;
  } catch {
    return "";
  }
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Partial<HTMLElementTagNameMap[Tag]>} properties
 * @param {...(string | Node)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** @param {string} text */
function code(text) {
  return element("code", {}, text);
}
