/**
 * Progressive enhancement of the shop's forms. Without this file they post as usual, with a hidden field for the key.
 * With it, each action has one key, made before the first attempt and kept until there is a final answer.
 */

import { enhanceCart } from "./cart.js";
import { perform } from "./once.js";
import { ACCOUNT, CARELESS, DOUBLE_CLICK, element, keepForNextPage, say, saidBefore, toast } from "./page.js";
import { begin, find, finish, hold, unfinished } from "./pending.js";
import { isFinal } from "./retry.js";
import { explanation, noun, sentence } from "./words.js";

/** @typedef {import("./pending.js").Action} Action */
/** @typedef {import("./once.js").Outcome} Outcome */

/** Fields of the form that are not part of the request's body: they are sent as headers. */
const TRAVEL_AS_HEADERS = ["_idempotency_key", "csrf_token"];

/** Send a form by script instead of by the browser. @param {HTMLFormElement} form */
function enhance(form) {
  const name = form.dataset.once ?? "";
  const go = (/** @type {HTMLElement | null} */ submitter) =>
    run(form, find(ACCOUNT, name) ?? begin({ name, url: form.action, body: bodyOf(form, submitter), account: ACCOUNT }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!form.dataset.busy) go(event.submitter);
  });
  form.querySelector("[data-again]")?.addEventListener("click", () => go(null));
  form.querySelector("[data-afresh]")?.addEventListener("click", () => leaveToSupport(find(ACCOUNT, name)));
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}

/**
 * Perform a form's action and report progress in its status line.
 * @param {HTMLFormElement} form
 * @param {Action} action
 * @param {string} [opening]
 */
async function run(form, action, opening = "") {
  const line = form.querySelector("[data-status]");
  const again = form.querySelector("[data-again]");
  let played = "";
  setBusy(form, true);
  if (again instanceof HTMLElement) again.hidden = true;
  const outcome = await perform(action, {
    careless: CARELESS,
    copies: DOUBLE_CLICK && action.name === "checkout" && !opening ? 2 : 1,
    tell: (news) => {
      if (news.kind === "twice") played = sentence(news, CARELESS);
      const first = news.kind === "sending" && news.attempt === 1 ? opening : "";
      say(line, `${first} ${sentence(news, CARELESS)}`.trim(), "busy", "reference" in news ? news.reference : "");
    },
  });
  settle(action, outcome);
  if (outcome.course === "done") {
    say(line, "Done. One moment …", "good", outcome.reference);
    if (played) keepForNextPage(played);
    location.assign(outcome.body.url ?? (outcome.url || location.href));
    return;
  }
  const isHere = form.contains(document.activeElement);
  leadOn(form, outcome);
  if (outcome.course === "sign-in") location.assign(`/sign-in?next=${encodeURIComponent(location.pathname)}`);
  if (isHere) standOn([line?.querySelector("a"), form.querySelector("[data-afresh]"), again]);
}

/** Remove an action under manual review, so that another can begin. @param {Action | undefined} action */
function leaveToSupport(action) {
  if (action?.held) finish(action);
}

/**
 * Say why a form's action did not succeed, and offer what can be done next: to send the same again, while its outcome
 * is unknown; to start from another page, if it has ended or is under manual review; or to correct the form.
 * @param {HTMLFormElement} form
 * @param {Outcome} outcome
 */
function leadOn(form, outcome) {
  const { course, reference } = outcome;
  const line = form.querySelector("[data-status]");
  const afresh = form.querySelector("[data-afresh]");
  say(line, explanation(outcome, CARELESS), "bad", reference);
  if (course === "person") line?.append(" ", element("a", { href: supportDesk(reference) }, "Open the support desk"));
  const mayRepeat = course === "person" || (course === "gave-up" && !CARELESS);
  if (mayRepeat) form.querySelector("[data-again]")?.removeAttribute("hidden");
  if (afresh instanceof HTMLAnchorElement && (isFinal(course) || ["reload", "person"].includes(course) || (course === "gave-up" && CARELESS))) offer(afresh, course);
  else if (!mayRepeat) setBusy(form, false);
}

/**
 * Focus the first of these elements that is shown.
 * @param {(Element | null | undefined)[]} choices
 */
function standOn(choices) {
  const next = choices.find((each) => each instanceof HTMLElement && !each.hidden);
  if (next instanceof HTMLElement) next.focus();
}

/**
 * Lead to a new page: the final answer has used this page's order number, or the page is too old.
 * @param {HTMLAnchorElement} link
 * @param {string} course
 */
function offer(link, course) {
  if (course === "declined") link.textContent = "Choose another card";
  if (course === "person") link.textContent = "Leave it to support, and buy something else";
  if (course === "refused") {
    link.textContent = "Look at the cart";
    link.href = "/cart";
  }
  link.hidden = false;
}

/**
 * Resume the actions of earlier pages, each in its own form if that is on this page. Actions under manual review are
 * only shown, not sent.
 */
function resume() {
  for (const action of unfinished(ACCOUNT)) {
    const form = document.querySelector(`form[data-once="${CSS.escape(action.name)}"]`);
    const isHere = form instanceof HTMLFormElement && !action.name.startsWith("cart:");
    if (isHere && action.held) {
      setBusy(form, true);
      leadOn(form, { course: "person", reference: action.held, status: 0, body: {}, url: "", wait: 0, cause: "" });
    } else if (isHere) {
      run(form, action, "You had already sent this. Going on where it stopped.");
    } else if (!action.held) {
      resumeElsewhere(action);
    } else if (location.pathname !== "/support") {
      const more = { reference: action.held, url: supportDesk(action.held), label: "Ask support" };
      toast(`${noun(action.name)} waits for a person.`, "busy", { ...more, again: () => resumeElsewhere(action) });
    }
  }
}

/** @param {Action} action */
async function resumeElsewhere(action) {
  const what = noun(action.name);
  const isPayment = action.name === "checkout";
  const outcome = await perform(action, {
    careless: CARELESS,
    tell: (news) => toast(`${what} is still under way. ${sentence(news, CARELESS)}`, "busy"),
  });
  settle(action, outcome);
  const { reference } = outcome;
  const url = outcome.body.url ?? outcome.url;
  if (outcome.course !== "done") {
    toast(`${what}: ${explanation(outcome, CARELESS)}`, "bad", { reference, url: reference && supportDesk(reference), label: "Ask support" });
  } else if (isPayment && url && ["/cart", "/checkout"].includes(location.pathname)) {
    location.assign(url);
  } else if (location.pathname === "/cart") {
    location.reload();
  } else {
    toast(`${what} is done.`, "good", isPayment ? { url, label: "Show the order", reference } : {});
  }
}

/**
 * Remove the action if its answer is final, or if the shop never read it, so that it is not done later by surprise.
 * Any other action may still be in flight, so its key is kept.
 * @param {Action} action
 * @param {Outcome} outcome
 */
function settle(action, { course, unseen, reference }) {
  if (isFinal(course) || unseen || (CARELESS && course === "gave-up")) finish(action);
  else if (course === "person") hold(action, reference);
}

/**
 * Keep a busy form from being changed. A field that is disabled loses the focus, so the button takes it first.
 * @param {HTMLFormElement} form
 * @param {boolean} busy
 */
function setBusy(form, busy) {
  const button = form.querySelector("button[type=submit]");
  const here = document.activeElement;
  if (busy && form.contains(here) && here?.closest("fieldset, [data-again]")) standOn([button]);
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

/** Show a time in the visitor's time zone; the server only knows UTC. @param {HTMLTimeElement} time */
function localise(time) {
  time.textContent = new Date(time.dateTime).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

/** Copy the text of the element that the button names. @param {HTMLButtonElement} button */
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
  const said = saidBefore();
  if (said) toast(said, "good");
  resume();
}
