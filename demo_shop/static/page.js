/**
 * What the server told this page through <body>, and the two places where the page speaks: a form's line and the toast.
 */

const { account = "", protection = "1", doubleClick = "0" } = document.body.dataset;

/** Whose page it is; empty if nobody is signed in. */
export const ACCOUNT = account;
/** The lab has switched protection off: behave like a client that knows no keys. */
export const CARELESS = protection === "0";
/** The lab plays a double click on every payment. */
export const DOUBLE_CLICK = doubleClick === "1";

/** @typedef {"busy" | "good" | "bad"} Tone */

/**
 * Speak in a status line. It is a live region: what is written there is read aloud.
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

let fading = 0;

/**
 * Speak at the edge of the page, where no form is near.
 * @param {string} text
 * @param {Tone} tone
 * @param {{url?: string, label?: string, reference?: string}} [more]
 */
export function toast(text, tone, { url = "", label = "", reference = "" } = {}) {
  const place = document.querySelector("[data-toast]");
  if (!place) return;
  clearTimeout(fading);
  const parts = [element("p", { className: `toast toast-${tone}` }, text)];
  if (reference) parts[0].append(" Reference ", code(reference));
  if (url) parts[0].append(" ", element("a", { href: url }, label));
  place.replaceChildren(...parts);
  if (tone === "good" && !url) fading = setTimeout(() => place.replaceChildren(), 6000);
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
