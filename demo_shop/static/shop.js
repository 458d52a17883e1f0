/**
 * Progressive enhancement of the shop's forms. Without this file they post as forms do, with their hidden key field.
 * With it: one key per action, made before the first send and kept until a final answer came.
 */

import { enhanceCart } from "./cart.js";
import { perform } from "./once.js";
import { ACCOUNT, CARELESS, DOUBLE_CLICK, element, say, toast } from "./page.js";
import { begin, find, finish, unfinished } from "./pending.js";
import { isFinal } from "./retry.js";
import { explanation, noun, sentence } from "./words.js";

/** @typedef {import("./pending.js").Action} Action */
/** @typedef {import("./once.js").Outcome} Outcome */

/** Fields of the form that are not part of what is asked: they travel as headers. */
const TRAVEL_AS_HEADERS = ["_idempotency_key", "csrf_token"];

/** Let a form be sent by us instead of the browser. @param {HTMLFormElement} form */
function enhance(form) {
  const again = form.querySelector("[data-again]");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (form.dataset.busy) return;
    const name = form.dataset.once ?? "";
    run(form, find(ACCOUNT, name) ?? begin({ name, url: form.action, body: bodyOf(form, event.submitter), account: ACCOUNT }));
  });
  again?.addEventListener("click", () => form.requestSubmit());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}

/**
 * Perform a form's action and show all that happens in its status line.
 * @param {HTMLFormElement} form
 * @param {Action} action
 * @param {string} [opening]
 */
async function run(form, action, opening = "") {
  const line = form.querySelector("[data-status]");
  const again = form.querySelector("[data-again]");
  setBusy(form, true);
  if (again instanceof HTMLElement) again.hidden = true;
  const outcome = await perform(action, {
    careless: CARELESS,
    copies: DOUBLE_CLICK && action.name === "checkout" && !opening ? 2 : 1,
    tell: (news) => {
      const first = news.kind === "sending" && news.attempt === 1 ? opening : "";
      say(line, `${first} ${sentence(news, CARELESS)}`.trim(), "busy", "reference" in news ? news.reference : "");
    },
  });
  settle(action, outcome);
  if (outcome.course === "done") {
    say(line, "Done. One moment …", "good", outcome.reference);
    location.assign(outcome.body.url ?? (outcome.url || location.href));
    return;
  }
  say(line, explanation(outcome), "bad", outcome.reference);
  if (outcome.course === "person") line?.append(element("a", { href: supportDesk(outcome.reference) }, "Open the support desk"));
  const afresh = form.querySelector("[data-afresh]");
  if (afresh instanceof HTMLAnchorElement && isFinal(outcome.course)) offer(afresh, outcome.course === "declined");
  else setBusy(form, false);
  if (outcome.course === "sign-in") location.assign(`/sign-in?next=${encodeURIComponent(location.pathname)}`);
  if (again instanceof HTMLElement) again.hidden = !["gave-up", "person"].includes(outcome.course);
}

/**
 * This page's order number is used up by its final answer: another try begins with another page.
 * @param {HTMLAnchorElement} link
 * @param {boolean} declined
 */
function offer(link, declined) {
  if (declined) link.textContent = "Choose another card";
  link.hidden = false;
}

/**
 * Go on with what an earlier page began, each in its own form if that is on this page.
 */
function resume() {
  for (const action of unfinished(ACCOUNT)) {
    const form = document.querySelector(`form[data-once="${CSS.escape(action.name)}"]`);
    if (form instanceof HTMLFormElement && !action.name.startsWith("cart:")) {
      run(form, action, "You had already sent this. Going on where it stopped.");
    } else {
      resumeElsewhere(action);
    }
  }
}

/** @param {Action} action */
async function resumeElsewhere(action) {
  const what = noun(action.name);
  const isPayment = action.name === "checkout";
  const outcome = await perform(action, {
    careless: CARELESS,
    tell: (news) => toast(`${what} was not finished. ${sentence(news, CARELESS)}`, "busy"),
  });
  settle(action, outcome);
  const { reference } = outcome;
  const url = outcome.body.url ?? outcome.url;
  if (outcome.course !== "done") {
    toast(`${what}: ${explanation(outcome)}`, "bad", { reference, url: reference && supportDesk(reference), label: "Ask support" });
  } else if (isPayment && url && ["/cart", "/checkout"].includes(location.pathname)) {
    location.assign(url);
  } else if (location.pathname === "/cart") {
    location.reload();
  } else {
    toast(`${what} is done.`, "good", isPayment ? { url, label: "Show the order", reference } : {});
  }
}

/**
 * Forget the action if its answer is final. Everything else may still be under way: its key is kept.
 * @param {Action} action
 * @param {Outcome} outcome
 */
function settle(action, { course }) {
  if (isFinal(course)) finish(action);
}

/** @param {HTMLFormElement} form @param {boolean} busy */
function setBusy(form, busy) {
  if (busy) form.dataset.busy = "1";
  else delete form.dataset.busy;
  for (const button of form.querySelectorAll("button[type=submit]")) button.setAttribute("aria-disabled", String(busy));
  for (const group of form.querySelectorAll("fieldset")) group.disabled = busy;
}

/**
 * @param {HTMLFormElement} form
 * @param {HTMLElement | null} submitter
 * @returns {string}
 */
function bodyOf(form, submitter) {
  const fields = new URLSearchParams(/** @type {any} */ (new FormData(form, submitter)));
  for (const name of TRAVEL_AS_HEADERS) fields.delete(name);
  return fields.toString();
}

/** @param {string} reference */
function supportDesk(reference) {
  return `/support?reference=${encodeURIComponent(reference)}`;
}

/** Show a time as the clock on the wall has it; the server only knows UTC. @param {HTMLTimeElement} time */
function localise(time) {
  time.textContent = new Date(time.dateTime).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

/** Copy what stands in the element that the button names. @param {HTMLButtonElement} button */
function enhanceCopy(button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy ?? "");
    const line = document.getElementById(button.getAttribute("aria-describedby") ?? "");
    if (!source || !line) return;
    line.textContent = (await copied(source)) ? "Copied." : "Selected: press Ctrl+C to copy.";
  });
}

/** @param {HTMLElement} source @returns {Promise<boolean>} */
async function copied(source) {
  try {
    await navigator.clipboard.writeText(source.textContent?.trim() ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(source);
    return false;
  }
}

document.querySelectorAll("time").forEach(localise);
for (const button of document.querySelectorAll("button[data-copy]")) enhanceCopy(/** @type {HTMLButtonElement} */ (button));

if (ACCOUNT) {
  for (const form of document.querySelectorAll("form[data-once]")) {
    if (form instanceof HTMLFormElement && !form.dataset.once?.startsWith("cart:")) enhance(form);
  }
  enhanceCart();
  resume();
}
