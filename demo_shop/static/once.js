/**
 * Send an action until it has a final answer: the same request, the same key, with growing pauses. If an answer was lost
 * and the first request still runs, the next attempt gets its receipt instead, and the answer is read there.
 */

import { countSend, newKey, sendsOf } from "./pending.js";
import { CARELESS_SENDS, GIVE_UP, PATIENCE, SLOW, backoff, decide, retryAfter } from "./retry.js";

/** @typedef {import("./pending.js").Action} Action */

/**
 * @typedef {object} Outcome
 * @property {import("./retry.js").Course | "gave-up"} course
 * @property {number} status 0 if there was no answer
 * @property {Record<string, any>} body of a JSON answer; empty otherwise
 * @property {string} reference what to tell support; empty if none is known
 * @property {string} url where a redirect led to; empty without one
 * @property {number} wait what the server asked to wait, in milliseconds
 * @property {boolean} [unseen] the shop has not read the action from any page: nothing was done
 * @property {string} cause "lost", "silent", "running", "busy", "unknown" or "trouble": why it is asked again
 */

/**
 * @typedef {{kind: "sending", attempt: number, copies: number, reference: string}
 *   | {kind: "slow", attempt: number, reference: string}
 *   | {kind: "waiting", attempt: number, cause: string, delay: number, reference: string}
 *   | {kind: "receipt", reference: string}
 *   | {kind: "offline"}
 *   | {kind: "twice", statuses: number[]}} News
 */

/**
 * Perform an action.
 * @param {Action} action
 * @param {object} options
 * @param {(news: News) => void} [options.tell] is called with everything that happens on the way
 * @param {number} [options.copies] how many copies of the first attempt are sent at once: 2 simulates a double click
 * @param {boolean} [options.careless] a new key for each attempt, like a client that knows nothing of retries
 * @param {number} [options.giveUp] milliseconds
 * @returns {Promise<Outcome>}
 */
export async function perform(action, { tell = () => {}, copies = 1, careless = false, giveUp = GIVE_UP } = {}) {
  const send = (/** @type {boolean} */ isRetry) => {
    countSend(action);
    const follow = (/** @type {string} */ reference) => tell({ kind: "receipt", reference });
    return sendOnce(action, careless ? newKey() : action.key, isRetry, follow);
  };
  let deadline = Date.now() + giveUp;
  let reference = "";
  for (let attempt = 1; ; attempt += 1) {
    if (!navigator.onLine) {
      tell({ kind: "offline" });
      await backOnline();
      deadline = Date.now() + giveUp;
    }
    const sends = attempt === 1 ? copies : 1;
    const isRetry = sendsOf(action) > 0; // by an earlier page, perhaps
    tell({ kind: "sending", attempt, copies: sends, reference });
    const slow = setTimeout(() => tell({ kind: "slow", attempt, reference }), SLOW);
    const outcomes = await Promise.all(Array.from({ length: sends }, () => send(isRetry)));
    clearTimeout(slow);
    if (sends > 1) tell({ kind: "twice", statuses: outcomes.map((outcome) => outcome.status) });
    const outcome = outcomes.find((one) => one.course !== "again") ?? outcomes[0];
    reference = outcome.reference ||= reference;
    outcome.unseen = outcomes.every((one) => one.course === "reload") && sendsOf(action) === sends;
    if (outcome.course !== "again") return outcome;
    const delay = backoff(attempt, outcome.wait);
    if (Date.now() + delay > deadline || (careless && attempt >= CARELESS_SENDS)) return { ...outcome, course: "gave-up" };
    tell({ kind: "waiting", attempt, cause: outcome.cause, delay, reference });
    await pause(delay);
  }
}

/**
 * Make one attempt. Never throws: no answer is an outcome too.
 * @param {Action} action
 * @param {string} key
 * @param {boolean} isRetry it would rather have a receipt than be refused while the first request runs
 * @param {(reference: string) => void} follow is called when it got one
 * @returns {Promise<Outcome>}
 */
async function sendOnce(action, key, isRetry, follow) {
  const nothing = { status: 0, body: {}, reference: "", url: "", wait: 0 };
  try {
    const response = await fetch(action.url, {
      method: "POST",
      body: action.body,
      credentials: "same-origin",
      signal: AbortSignal.timeout(PATIENCE),
      headers: {
        Accept: "application/json",
        "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8",
        "Idempotency-Key": key,
        "X-CSRF-Token": csrfToken(),
        ...(isRetry ? { Prefer: "respond-async" } : {}),
      },
    });
    const outcome = await read(response);
    const { receipt, state } = outcome.body;
    if (response.status !== 202 || state !== "running" || typeof receipt !== "string") return outcome;
    follow(outcome.reference);
    return await readReceipt(receipt, { ...outcome, course: "again", cause: "running" });
  } catch (error) {
    const cause = error instanceof DOMException && error.name === "TimeoutError" ? "silent" : "lost";
    return { ...nothing, course: "again", cause };
  }
}

/**
 * Read an answer.
 * @param {Response} response
 * @returns {Promise<Outcome>}
 */
async function read(response) {
  const body = parse(await response.text());
  const url = response.redirected ? response.url : "";
  const course = url && new URL(url).pathname === "/sign-in" ? "sign-in" : decide(response.status, body.code);
  const reference = response.headers.get("Idempotency-Reference") ?? body.reference ?? "";
  const wait = retryAfter(response.headers.get("Retry-After"));
  const cause = body.code === "outcome-unknown" ? "unknown" : { 409: "running", 503: "busy" }[response.status] ?? "trouble";
  return { course, status: response.status, body, reference, url, wait, cause };
}

/**
 * Look at a receipt until the request has ended, and read its answer there. If no attempt runs any more, or it takes too
 * long, the request is to be sent again.
 * @param {string} receipt
 * @param {Outcome} running
 * @returns {Promise<Outcome>}
 */
async function readReceipt(receipt, running) {
  const signal = AbortSignal.timeout(PATIENCE);
  const headers = { Accept: "application/json" };
  for (;;) {
    const shown = await fetch(receipt, { credentials: "same-origin", signal, headers });
    const { state } = parse(await shown.text());
    if (state === "finished" || state === "quarantined") {
      return read(await fetch(`${receipt}?answer=1`, { credentials: "same-origin", signal, headers }));
    }
    const wait = retryAfter(shown.headers.get("Retry-After"));
    if (!wait) return { ...running, wait: 0 };
    await pause(wait);
  }
}

/** @param {string} text @returns {Record<string, any>} */
function parse(text) {
  try {
    const body = JSON.parse(text);
    return typeof body === "object" && body !== null ? body : {};
  } catch {
    return {};
  }
}

function csrfToken() {
  return document.querySelector('meta[name="csrf-token"]')?.getAttribute("content") ?? "";
}

function backOnline() {
  return new Promise((resolve) => addEventListener("online", resolve, { once: true }));
}

/** @param {number} milliseconds */
function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
