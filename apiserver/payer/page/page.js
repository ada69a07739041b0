// The page of a payment. It shows and hides what the server has rendered, and makes no text of its own.
const payment = document.getElementById("payment");
const remaining = document.getElementById("remaining");
const announcement = document.getElementById("announcement");

const section = (status) => payment.querySelector(`section[data-state="${status}"]`);

// A screen reader says a text that is new, so the same one is not set twice.
function announce(text) {
  if (announcement.textContent !== text) {
    announcement.textContent = text;
  }
}

function show(status) {
  const shown = payment.dataset.status;
  const next = section(status);
  if (status === shown) {
    return;
  }
  if (!next) { // the session is gone
    location.reload();
    return;
  }
  section(shown).hidden = true;
  next.hidden = false;
  payment.dataset.status = status;
  document.title = next.dataset.title;
  announce(next.querySelector("h1").textContent);
  if (status !== "PENDING") {
    clearInterval(ticking);
    hide("check", true);
    hide("offline", true);
    readAgain([0, 2e3, 8e3, 30e3, ...minutes]);
  }
}

// The receipt of a session that ends while the page is open lacks its time; of one that is paid money may go back, and money that a session does not take
// may come to any. Only the page says so. It is read again whenever the payer returns to it, and ever less often: long polls do not say that such money
// came to a pending session.
const minutes = [60e3, 120e3, 240e3, 480e3, 900e3];
addEventListener("visibilitychange", () => document.hidden || readPage(), { capture: true });
addEventListener("pageshow", ({ persisted }) => persisted && readPage());

let readings = 0;
async function readAgain(pauses) {
  const own = ++readings;
  for (const pause of pauses) {
    await new Promise((done) => setTimeout(done, pause));
    if (own !== readings) { // the session has ended meanwhile
      return;
    }
    if (!document.hidden) {
      await readPage();
    }
  }
}

async function readPage() {
  const text = await fetch(location.pathname, { cache: "no-store", credentials: "omit" })
    .then((answer) => answer.ok ? answer.text() : "").catch(() => "");
  const page = new DOMParser().parseFromString(text, "text/html");
  const refused = page.getElementById("refused");
  const before = document.getElementById("refused");
  if (refused && !refused.hidden && refused.innerHTML !== before.innerHTML) { // hidden: the server could not read them now
    announce(refused.textContent);
    before.replaceWith(refused);
  }
  const shown = section("COMPLETED");
  const fresh = page.querySelector(`section[data-state="COMPLETED"]`);
  if (payment.dataset.status === "COMPLETED" && fresh?.querySelector("dl") && fresh.innerHTML !== shown.innerHTML) {
    const heading = shown.querySelector("h1").textContent;
    shown.replaceChildren(...fresh.childNodes);
    document.title = shown.dataset.title = fresh.dataset.title;
    if (shown.querySelector("h1").textContent !== heading) {
      announce(shown.querySelector("h1").textContent);
    }
  }
}

function hide(id, hidden) {
  document.getElementById(id).hidden = hidden;
}

// The time left is counted from what the server said, never from the clock of the device, which may be a day off.
let endsAt = 0;
let left = Infinity;

function setExpiresIn(seconds) {
  endsAt = performance.now() + seconds * 1000;
  tick();
}

function clock(seconds) {
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return (hours ? `${hours}:${two(minutes)}` : minutes) + `:${two(seconds % 60)}`;
}

// Only the server knows whether a session has expired: at the end of the time the page asks, and says no more than that it is over.
function tick() {
  const before = left;
  left = Math.max(0, Math.ceil((endsAt - performance.now()) / 1000));
  if (left === before) {
    return;
  }
  remaining.textContent = clock(left);
  for (const seconds of [300, 60, 0]) {
    if (before > seconds && left <= seconds && before !== Infinity) {
      announce(remaining.getAttribute(`data-announce-${seconds}`));
    }
  }
  if (left === 0) {
    client?.check();
  }
}

let client;
let ticking;
readAgain(minutes);
if (payment.dataset.status === "PENDING") {
  setExpiresIn(Number(payment.dataset.expiresIn));
  ticking = setInterval(tick, 500);
  hide("updates", false);
  hide("check", true);
  client = watchStatus(payment.dataset.statusUrl, {
    onStatus: ({ status, expiresIn }) => {
      if (expiresIn !== undefined) {
        setExpiresIn(expiresIn);
      }
      show(status);
    },
    onRepeat: readPage, // something happened, and the session is still pending: money came that it did not take, or went back
    onExpiresIn: setExpiresIn,
    onConnection: (online) => {
      hide("offline", online);
      hide("check", online);
      if (!online) {
        announce(document.getElementById("offline").textContent);
      }
    },
  });
}
