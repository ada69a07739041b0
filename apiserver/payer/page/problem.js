// The page about an error that passes. It asks until there is another answer, and then loads itself.
const LONGEST = 30e3;
let timer;
let asking = false;
let failures = 0;

function askIn(ms) {
  clearTimeout(timer);
  timer = setTimeout(ask, ms);
}

async function ask() {
  if (asking) {
    return;
  }
  asking = true;
  const answer = await fetch(location.href, { method: "HEAD", cache: "no-store", credentials: "omit" }).catch(() => undefined);
  asking = false;
  if (answer && answer.status !== 429 && answer.status < 500) {
    location.reload();
    return;
  }
  const retryAfter = Number(answer?.headers.get("Retry-After")) || 0;
  askIn(Math.max(retryAfter * 1000, pause()));
}

// The pauses grow, and differ between pages: all of them have seen the same outage.
function pause() {
  return Math.min(LONGEST, 2000 * 2 ** failures++) * (0.75 + Math.random() / 2);
}

document.getElementById("updates").hidden = false;
for (const type of ["online", "pageshow", "visibilitychange"]) {
  addEventListener(type, ({ persisted }) => {
    if (type === "online" || persisted || (type === "visibilitychange" && !document.hidden)) {
      askIn(0);
    }
  }, { capture: true });
}
askIn(pause());
