/**
 * Every message of the page in one place: progress, and outcomes.
 */

/** @typedef {import("./once.js").News} News */
/** @typedef {import("./once.js").Outcome} Outcome */

const CAUSES = {
  lost: "The answer got lost.",
  silent: "There was no answer for 15 seconds.",
  running: "The first request is still running, or its worker died: then another takes over within ten seconds.",
  busy: "The shop cannot answer right now.",
  unknown: "The bank's answer did not arrive: perhaps it charged the card, perhaps not.",
  trouble: "Something went wrong in the shop.",
};

const DECLINES = {
  card_declined: "The bank declined this card.",
  insufficient_funds: "There is not enough money on this card.",
};

/**
 * @param {News} news
 * @param {boolean} careless
 * @returns {string}
 */
export function sentence(news, careless) {
  const key = careless ? "a new key" : "the same key";
  switch (news.kind) {
    case "offline":
      return "You are offline. Nothing is lost: it continues when the connection is back.";
    case "twice":
      return `A double click was simulated: two requests at the same instant. Their answers: ${news.statuses.map((status) => status || "none").join(" and ")}.`;
    case "slow":
      return careless ? "Still waiting for the answer …" : "Still waiting for the answer. You may leave this page: it continues when you come back.";
    case "receipt":
      return "The first request is still running. Its answer will be on its receipt …";
    case "waiting":
      return `${CAUSES[news.cause]} Asking again with ${key} (attempt ${news.attempt + 1}) in ${seconds(news.delay)} …`;
    case "sending":
      if (news.copies > 1) return `Sending twice at once, with ${careless ? "two keys" : "one key"} …`;
      return news.attempt === 1 ? "Sending …" : `Asking again with ${key} (attempt ${news.attempt}) …`;
  }
}

/**
 * Say why an action did not succeed, and what to do.
 * @param {Outcome} outcome
 * @param {boolean} [careless]
 * @returns {string}
 */
export function explanation({ course, status, body, unseen }, careless = false) {
  const said = [body.detail, body.text, body.error, body.message].find((text) => typeof text === "string");
  switch (course) {
    case "declined":
      return `${DECLINES[body.declined] ?? "The payment was declined."} Nothing was charged.`;
    case "person":
      return "Only a person can find out what happened here. Do not pay again: ask the support desk and quote the reference.";
    case "gave-up":
      if (careless) return "There was no answer. For the bank, each attempt was another purchase: look at its ledger.";
      return "The shop has not given an answer for a while. Your key is kept, so trying again cannot do it twice.";
    case "sign-in":
      return "Please sign in again; your action then continues.";
    case "reload":
      if (unseen) return "This page is too old, so nothing was done. Open it again, then try once more.";
      return "This page is too old. Load it again; your action then continues with the same key.";
    default:
      if (status === 410) return "It is done, but the answer was not kept. Do not repeat it: look in your orders.";
      return said ?? `The shop refused this (${status}).`;
  }
}

/**
 * The name of an action in a sentence.
 * @param {string} name
 */
export function noun(name) {
  const [kind] = name.split(":");
  return { checkout: "Your payment", refund: "Your refund request", cart: "A change to your cart" }[kind] ?? "An action";
}

/** @param {number} cents */
export function euro(cents) {
  return new Intl.NumberFormat("en-IE", { style: "currency", currency: "EUR" }).format(cents / 100);
}

/** @param {number} milliseconds */
function seconds(milliseconds) {
  return milliseconds < 1000 ? "a moment" : `${Math.round(milliseconds / 1000)} s`;
}
