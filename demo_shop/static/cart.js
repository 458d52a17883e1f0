/**
 * The optimistic cart: the page shows a change at once, and returns to what the shop last confirmed if it is refused.
 * Each change is an action with a key of its own; of several quick changes, only the last is sent.
 */

import { perform } from "./once.js";
import { ACCOUNT, CARELESS, toast } from "./page.js";
import { begin, find, finish } from "./pending.js";
import { isFinal } from "./retry.js";
import { euro, explanation, sentence } from "./words.js";

/** Milliseconds. Nobody waits longer than this to put a cup into a cart. */
const GIVE_UP = 20_000;

/** Enhance the lines of the cart page, and the forms that put something in. */
export function enhanceCart() {
  document.querySelectorAll("[data-cart-line]").forEach((item) => enhanceLine(/** @type {HTMLElement} */ (item)));
  document.querySelectorAll("form[data-once^='cart:'][data-add]").forEach((form) => enhanceAdd(/** @type {HTMLFormElement} */ (form)));
}

/** @param {HTMLElement} item */
function enhanceLine(item) {
  const form = /** @type {HTMLFormElement} */ (item.querySelector("form"));
  const line = { confirmed: shown(item), wanted: shown(item), busy: false };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement | null} */ (event.submitter);
    if (button?.getAttribute("aria-disabled") === "true") {
      toast(item.dataset.full ?? "", "limit"); // not "bad": the answers to the clicks before are still to come
      return;
    }
    document.querySelector("[data-toast] .toast-limit")?.remove();
    line.wanted = Number(button?.value ?? line.wanted);
    show(item, line.wanted);
    if (line.busy) return;
    line.busy = true;
    while (line.wanted !== line.confirmed) {
      const target = line.wanted;
      const outcome = await put(form, { quantity: String(target) });
      if (outcome.course === "done" && outcome.body.note) {
        line.wanted = line.confirmed = kept(outcome.body, form);
        show(item, line.confirmed);
        confirm(outcome.body);
        toast(outcome.body.note, "bad");
      } else if (outcome.course === "done") {
        line.confirmed = target;
        if (line.wanted === target) confirm(outcome.body);
      } else {
        line.wanted = line.confirmed;
        show(item, line.confirmed);
        toast(`Not changed: ${explanation(outcome)}`, "bad", { reference: outcome.reference });
      }
    }
    line.busy = false;
    if (line.confirmed === 0) remove(item);
  });
}

/**
 * How many of a form's product the shop has put into the cart: fewer than asked for if there are no more.
 * @param {Record<string, any>} answer
 * @param {HTMLFormElement} form
 * @returns {number}
 */
function kept({ lines = [] }, form) {
  return lines.find((/** @type {{product: string}} */ line) => line.product === productOf(form))?.quantity ?? 0;
}

/** @param {HTMLFormElement} form */
function productOf(form) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem("product")).value;
}

/** @param {HTMLFormElement} form */
function enhanceAdd(form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.dataset.busy) return;
    form.dataset.busy = "1";
    const before = count();
    const quantity = Number(/** @type {HTMLInputElement} */ (form.elements.namedItem("quantity")).value);
    setCount(before + quantity);
    toast(`${form.dataset.product} is in your cart.`, "good", { url: "/cart", label: "Go to the cart" });
    const outcome = await put(form, { quantity: String(quantity), add: "1" });
    delete form.dataset.busy;
    if (outcome.course === "done") {
      confirm(outcome.body);
      if (outcome.body.note) toast(outcome.body.note, "bad", { url: "/cart", label: "Go to the cart" });
    } else {
      setCount(before);
      toast(`${form.dataset.product} is not in your cart: ${explanation(outcome)}`, "bad", { reference: outcome.reference });
    }
  });
}

/**
 * Ask the shop for a change. An addition without a final answer keeps its key: the next click sends it again.
 * Setting a quantity is harmless to repeat, so a new change never waits for an old one.
 * @param {HTMLFormElement} form
 * @param {Record<string, string>} change
 */
async function put(form, change) {
  const what = {
    name: form.dataset.once ?? "",
    url: form.action,
    body: new URLSearchParams({ product: productOf(form), ...change }).toString(),
    account: ACCOUNT,
  };
  const action = (change.add && find(ACCOUNT, what.name)) || begin(what);
  const outcome = await perform(action, {
    careless: CARELESS,
    giveUp: GIVE_UP,
    tell: (news) => news.kind !== "sending" && toast(sentence(news, CARELESS), "busy"),
  });
  if (!change.add || isFinal(outcome.course) || outcome.unseen) finish(action);
  return outcome;
}

/** Show what the shop says. @param {Record<string, any>} answer */
function confirm({ cart_count: inCart, total }) {
  if (Number.isInteger(inCart)) setCount(inCart);
  const place = document.querySelector("[data-cart-total]");
  if (place && total !== undefined) place.textContent = Number.isInteger(total) ? euro(total) : total;
  for (const old of document.querySelectorAll("[data-toast] :is(.toast-busy, .toast-bad)")) old.remove();
}

/** @param {HTMLElement} item */
function shown(item) {
  return Number(item.querySelector("[data-quantity]")?.textContent);
}

/**
 * Show a quantity, its sum, the total and the count in the header as if it were already so.
 * @param {HTMLElement} item
 * @param {number} quantity
 */
function show(item, quantity) {
  const [less, more] = /** @type {NodeListOf<HTMLButtonElement>} */ (item.querySelectorAll("button[data-step]"));
  const isFull = quantity >= Number(item.dataset.most);
  less.value = String(Math.max(0, quantity - 1));
  more.value = String(quantity + 1);
  more.setAttribute("aria-disabled", String(isFull)); // not disabled, because it would lose the focus
  write(item, "[data-quantity]", String(quantity));
  write(item, "[data-sum]", euro(quantity * Number(item.dataset.price)));
  item.classList.toggle("is-leaving", quantity === 0);
  const items = [...document.querySelectorAll("[data-cart-line]")].map((each) => /** @type {HTMLElement} */ (each));
  write(document, "[data-cart-total]", euro(items.reduce((sum, each) => sum + shown(each) * Number(each.dataset.price), 0)));
  setCount(items.reduce((sum, each) => sum + shown(each), 0));
}

/** Remove a line from the page, and move the focus. @param {HTMLElement} item */
function remove(item) {
  const heading = /** @type {HTMLElement | null} */ (document.querySelector("main h1"));
  item.remove();
  toast(`${item.dataset.name} was removed.`, "good");
  if (document.querySelector("[data-cart-line]")) heading?.focus();
  else location.reload();
}

function count() {
  return Number(document.querySelector("[data-cart-count]")?.textContent ?? 0);
}

/** @param {number} value */
function setCount(value) {
  write(document, "[data-cart-count]", String(value));
}

/** @param {ParentNode} root @param {string} selector @param {string} text */
function write(root, selector, text) {
  const place = root.querySelector(selector);
  if (place) place.textContent = text;
}
