/**
 * What an answer means for its sender, and how long to wait before asking again.
 * Pure: no clock, no network, no page, so that a test can call it in any browser.
 */

/** Milliseconds. The first wait is at most half a second: most losses are over by then. */
export const BASE = 500;
export const FACTOR = 2;
/** No wait is longer than this by itself: somebody is watching the page. */
export const CAP = 8_000;
/** After this long without an answer the page says that it is still waiting. */
export const SLOW = 3_000;
/** An attempt without an answer for this long counts as lost. Longer than the shop waits for its gateway. */
export const PATIENCE = 15_000;
/** After this long the person decides; the key is kept. */
export const GIVE_UP = 120_000;
/** Without protection every send may be another charge: a few are enough to see it. */
export const CARELESS_SENDS = 3;

/**
 * How long to wait after attempt number `attempt` (the first is 1).
 * Full jitter keeps many clients from coming back together; it is added to what the server asked for.
 * @param {number} attempt
 * @param {number} [asked] milliseconds from Retry-After
 * @param {() => number} [random] gives a number from 0 up to 1
 * @returns {number} milliseconds
 */
export function backoff(attempt, asked = 0, random = Math.random) {
  const ceiling = Math.min(CAP, BASE * FACTOR ** (attempt - 1));
  return asked + Math.floor(random() * ceiling);
}

/**
 * Read a Retry-After header given in seconds; anything else counts as absent.
 * @param {string | null} header
 * @returns {number} milliseconds
 */
export function retryAfter(header) {
  return /^\d{1,5}$/.test(header ?? "") ? Number(header) * 1000 : 0;
}

/**
 * @typedef {"done" | "declined" | "refused" | "again" | "person" | "sign-in" | "reload"} Course
 * done, declined, refused: a final answer; the key is used up.
 * again: send the same request with the same key. person: only support can tell; keep the key, stop asking.
 * sign-in: the shop has not read the request; keep the key for afterwards.
 * reload: the shop has not read this attempt; keep the key unless it was the first, when nothing was done.
 */

/**
 * Decide what to do with an answer.
 * @param {number} status
 * @param {string} [code] the `code` of a problem document
 * @returns {Course}
 */
export function decide(status, code = "") {
  if (code === "quarantined") return "person";
  if (status === 401 || code === "scope-unknown") return "sign-in";
  if (status === 403 || code === "csrf") return "reload";
  if (status >= 200 && status < 300) return "done";
  if (status === 402) return "declined";
  if (status === 409) return code === "request-in-flight" ? "again" : "refused";
  if (status >= 500 || [408, 425, 429].includes(status)) return "again";
  return "refused";
}

/**
 * Say whether the key is used up: whatever the user does next is another action.
 * @param {string} course
 */
export function isFinal(course) {
  return ["done", "declined", "refused"].includes(course);
}
