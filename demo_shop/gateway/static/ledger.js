// Refreshes the ledger once a second while the page is visible. The server renders the page.

const EVERY = 1000; // milliseconds
const live = document.querySelector("[data-live]");
let shown = document.querySelector("main").innerHTML;

function say(text, state) {
  if (live.textContent !== text) live.textContent = text;
  live.dataset.live = state;
}

async function refresh() {
  if (document.hidden) return say("paused", "paused");
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main").innerHTML;
    if (fresh !== shown) {
      // Only what has changed is redrawn, so that a selection or the table's scroll position stays.
      document.querySelector("main").innerHTML = shown = fresh;
      document.title = page.title;
    }
    say("live", "live");
  } catch {
    say("no answer; trying again", "lost");
  }
}

async function watch() {
  await refresh();
  setTimeout(watch, EVERY);
}

document.addEventListener("visibilitychange", refresh);
watch();
