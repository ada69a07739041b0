// watchStatus follows the public status of a session at url until it is final: by a stream, where that fails by long polls, else
// by polls. It sends one request at a time, and none after the end. Callbacks:
//   onStatus({merchantName, amountCents, status, expiresIn})  the first and each change; NOT_FOUND is final, too
//   onRepeat()  a stream sends the status that it has sent already: something else of the session is new; optional
//   onExpiresIn(seconds)  by the server's clock, as the device's may be wrong
//   onConnection(online)
function watchStatus(url, { onStatus, onExpiresIn, onConnection, onRepeat = () => {} }) {
  const STREAM = 0, WAIT = 1, POLL = 2;
  const jitter = (ms) => ms * (0.5 + Math.random());
  const now = () => performance.now();

  let mode = STREAM, streamAgainAt = 0, penalty = 20e3;
  let reconnect = jitter(4e3), interval = 2e3, failures = 0;
  let shown, online = true, expiresAt = 0;
  let request, sentAt, checkedAt = -50, timer, wake; // wake ends a pause
  let live, late, woken, asleep, stopped, muted;

  // A callback that throws must not look like a failed request.
  const emit = (callback, value) => queueMicrotask(() => muted || callback(value));

  function setOnline(is) {
    if (online !== is) emit(onConnection, online = is);
  }

  function setExpiresIn(seconds) {
    expiresAt = now() + seconds * 1e3;
    emit(onExpiresIn, seconds);
  }

  function setStatus(session, expiresIn) {
    if (!session.status) throw session; // it is of a captive portal
    live = true;
    failures = 0;
    setOnline(true);
    if (session.status !== shown) emit(onStatus, { ...session, expiresIn });
    shown = session.status;
    if (shown !== 'PENDING') stop();
    else if (expiresIn) setExpiresIn(expiresIn);
  }

  function abortAfter(ms) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      late = true;
      request.abort();
    }, ms);
  }

  async function readStream(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (live) abortAfter(40e3); // the server sends a heartbeat every 15 seconds
      const events = (text + value).split('\n\n');
      text = events.pop();
      for (const event of events) {
        const field = {};
        for (const line of event.split('\n')) field[line.split(':', 1)[0]] = line.replace(/^\w+: ?/, '');
        if (field.retry) reconnect = +field.retry;
        if (field.event === 'expires-in') setExpiresIn(+field.data);
        if (field.event === 'status') {
          penalty = 20e3;
          const session = JSON.parse(field.data);
          if (live && session.status === shown) emit(onRepeat);
          setStatus(session);
        }
        if (stopped) return;
      }
    }
  }

  // ask sends a request and returns the pause after it, in milliseconds.
  async function ask() {
    const waits = mode === WAIT && shown; // but not for the first answer
    sentAt = now();
    request = new AbortController();
    live = late = woken = false;
    abortAfter(waits ? 35e3 : 5e3);
    const response = await fetch(waits ? url + '?wait=25' : url, {
      headers: mode === STREAM ? { Accept: 'text/event-stream' } : {},
      cache: 'no-store', credentials: 'omit', signal: request.signal,
    });
    const type = response.headers.get('Content-Type') ?? '';
    if (response.status === 404 && type.includes('json')) { // else it is of a proxy
      setStatus({ status: 'NOT_FOUND' });
      return 0;
    }
    if (!response.ok) throw response;
    if (type.includes('event-stream')) {
      await readStream(response.body);
      if (!live) throw response;
      return reconnect;
    }
    setStatus(await response.json(), +response.headers.get('Session-Expires-In') || undefined);
    if (mode === STREAM) leaveStream(WAIT, penalty);
    else if (now() >= streamAgainAt) mode = STREAM;
    else if (waits && now() - sentAt < 1e3) mode = POLL; // the server does not wait
    if (mode !== POLL) return 0;
    interval = Math.min(interval * 1.5, 15e3);
    const left = expiresAt - now();
    return Math.min(jitter(interval), left > 0 ? left + jitter(500) : Infinity);
  }

  function leaveStream(next, ms) {
    mode = next;
    streamAgainAt = now() + ms;
    if (ms) penalty = Math.min(2 * penalty, 3e5);
  }

  // failed returns the pause before the next request.
  function failed({ status, headers }) {
    const backOff = jitter(1e3 * Math.min(2 ** failures++, 20));
    const retryAfter = status === 429 || mode === POLL ? headers?.get('Retry-After') * 1e3 : 0;
    if (failures > 1 || !navigator.onLine) setOnline(false);
    if (mode === STREAM && live) return late ? 0 : reconnect;
    // Without any answer the network is to blame, not the stream. 503 is also the limit of streams and long polls.
    if (mode === STREAM) leaveStream(status === 503 ? POLL : WAIT, status || late ? penalty : 0);
    else mode = POLL;
    return Math.max(backOff, retryAfter || 0);
  }

  async function run() {
    while (!stopped) {
      const pause = await ask().catch((failure) => woken ? 0 : failed(failure));
      clearTimeout(timer);
      request.abort(); // a body that was not read
      if (!stopped) await new Promise((done) => {
        wake = done;
        if (!asleep) timer = setTimeout(done, woken ? 20 : pause); // an aborted request takes some milliseconds to end
      });
    }
  }

  // check asks at once.
  function check() {
    woken = true;
    checkedAt = now();
    failures = 0;
    interval = 2e3;
    request.abort();
    wake?.();
  }

  function stop() {
    stopped = true;
    clearTimeout(timer);
    listeners.abort();
    request.abort();
    wake?.();
  }

  // Back from the background or from a gap of the network, what was sent before is stale. Going there frees the connection.
  const listeners = new AbortController();
  for (const type of ['freeze', 'resume', 'pagehide', 'pageshow', 'visibilitychange', 'online', 'offline']) {
    addEventListener(type, ({ persisted }) => {
      if (type === 'pageshow' && !persisted || type === 'visibilitychange' && document.hidden) return;
      asleep = type === 'freeze' || type === 'pagehide';
      // Events of a return come together.
      if (asleep || request.signal.aborted || type.endsWith('line') || now() - checkedAt > 50) check();
    }, { capture: true, signal: listeners.signal });
  }
  run();
  return { check, stop() { muted = true; stop(); } };
}
