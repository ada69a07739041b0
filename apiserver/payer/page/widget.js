// <payment-session session-id="ps_..."> shows the status of a payment on a page of another origin. See docs/widget.md.
const sheet = new CSSStyleSheet(); // a style element would need an exception in the page's Content-Security-Policy
sheet.replaceSync(`
:host { display: block }
:host([hidden]), [hidden] { display: none !important }
[part=box] {
  max-inline-size: 24rem;
  padding: var(--payment-session-padding, 1rem 1.25rem);
  border: var(--payment-session-border, 1px solid color-mix(in srgb, currentcolor 20%, transparent));
  border-radius: var(--payment-session-border-radius, 12px);
  overflow-wrap: anywhere;
}
[part=test] { margin-block-end: .5em; font-size: .875em; font-weight: 600 }
[part=merchant] { display: block }
[part=amount] { font-size: 1.5em }
[part=amount], [part~=status] { font-weight: 600 }
[part=merchant]:not(:empty) ~ [part~=status] { margin-block-start: .5em }
[part=merchant], [part~=hint], [part=remaining], [part=connection] {
  font-size: .875em;
  font-weight: normal;
  color: color-mix(in srgb, currentcolor 75%, transparent);
}
[part=amount], [part=remaining] { font-variant-numeric: tabular-nums }`);

class PaymentSession extends HTMLElement {
  static observedAttributes = ['session-id', 'base-url', 'lang', 'currency'];

  #parts = {};
  #slots = {};
  #timeLeft; // the words
  #watched; // the URL of #watch
  #watch;
  #session = {}; // as the server last said
  #online = true;
  #expiresAt; // of performance.now()
  #ticking;

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    const add = (parent, part) => {
      const element = document.createElement(part === 'merchant' ? 'bdi' : 'div');
      element.part = part;
      parent.append(element);
      return this.#parts[part] = element;
    };
    const box = add(root, 'box');
    add(box, 'test');
    add(box, 'merchant');
    add(box, 'amount');
    // A slot is announced when it is shown: each change once.
    add(box, 'status').setAttribute('role', 'status');
    add(box, 'remaining').setAttribute('role', 'timer');
    add(box, 'connection').setAttribute('role', 'status');
    for (const name of ['pending', 'completed', 'failed', 'expired', 'cancelled', 'not-found', 'offline']) { // as in WIDGET_TEXTS
      const slot = this.#slots[name] = document.createElement('slot');
      slot.name = name;
      this.#parts[name === 'offline' ? 'connection' : 'status'].append(slot);
    }
  }

  // The present status; undefined: not known yet.
  get status() {
    return this.#session.status;
  }

  connectedCallback() {
    this.#start();
    // Later, because a script may set it right after it has added the element.
    setTimeout(() => this.#watched || !this.isConnected || console.warn('<payment-session> has no session-id', this));
  }

  disconnectedCallback() {
    queueMicrotask(() => this.isConnected || this.#stop()); // it may be on its way to another place
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#start();
  }

  #start() {
    const id = this.getAttribute('session-id');
    const base = new URL((this.getAttribute('base-url') || '..').replace(/\/?$/, '/'), import.meta.url); // of /widget/v1.js
    const url = id && new URL('api/v1/public/sessions/' + encodeURIComponent(id), base).href;
    if (url !== this.#watched) {
      this.#stop();
      this.#session = {};
      this.#watched = url;
      if (url) this.#follow(url, id);
    }
    this.#translate();
    this.#show();
  }

  #follow(url, sessionId) {
    this.#watch = watchStatus(url, {
      onStatus: ({ merchantName, amountCents, status, livemode = true }) => {
        this.#session = status === 'NOT_FOUND' ? { sessionId, status } : { sessionId, status, merchantName, amountCents, livemode };
        if (status !== 'PENDING') clearInterval(this.#ticking);
        this.#show();
        this.dispatchEvent(new CustomEvent('payment-session:change', { bubbles: true, composed: true, detail: { ...this.#session } }));
      },
      onExpiresIn: (seconds) => {
        this.#expiresAt = performance.now() + seconds * 1e3;
        this.#tick();
      },
      onConnection: (online) => {
        this.#online = online;
        this.#show();
      },
    });
    this.#ticking = setInterval(() => this.#tick(), 1e3);
  }

  #stop() {
    clearInterval(this.#ticking);
    this.#watch?.stop();
    this.#watch = this.#watched = this.#expiresAt = undefined;
    this.#online = true;
  }

  // Sets the texts that the page has not given in slots. A text that is set again would be announced again.
  #translate() {
    const preferred = (this.closest('[lang]')?.lang || navigator.language).toLowerCase().split('-')[0];
    const language = preferred in WIDGET_TEXTS ? preferred : 'en';
    const { box } = this.#parts;
    if (language === box.lang) return;
    box.lang = language;
    box.dir = language === 'ar' ? 'rtl' : 'ltr';
    const [timeLeft, doNotPayAgain, test, ...texts] = WIDGET_TEXTS[language];
    this.#timeLeft = timeLeft;
    this.#parts.test.textContent = test;
    for (const slot of Object.values(this.#slots)) {
      const hint = document.createElement('div');
      hint.part = 'hint';
      if (['failed', 'expired', 'cancelled'].includes(slot.name)) hint.textContent = doNotPayAgain;
      slot.replaceChildren(texts.shift(), hint);
    }
  }

  #show() {
    const { status = '', merchantName = '', livemode = true } = this.#session;
    this.#parts.box.hidden = !this.#watched;
    this.#parts.test.hidden = livemode;
    const shown = status.toLowerCase().replace('_', '-');
    this.#parts.merchant.textContent = merchantName;
    this.#parts.amount.textContent = this.#amount();
    this.#parts.status.part = 'status ' + shown;
    for (const [name, slot] of Object.entries(this.#slots)) slot.hidden = name === 'offline' ? this.#online : name !== shown;
    this.#tick();
  }

  // The amount in the currency that the page names. Its digits are those of ISO 4217: browsers have others for some currencies.
  #amount() {
    const currency = this.getAttribute('currency')?.toUpperCase(), { amountCents } = this.#session;
    if (!currency || !amountCents) return;
    const digits = MINOR_DIGITS[currency] ?? 2;
    try {
      return (amountCents / 10 ** digits).toLocaleString(this.#parts.box.lang + '-u-nu-latn', {
        style: 'currency', currency, minimumFractionDigits: digits, maximumFractionDigits: digits,
      });
    } catch {
      console.warn('<payment-session> has a wrong currency', this);
    }
  }

  #tick() {
    const { remaining } = this.#parts;
    remaining.hidden = this.status !== 'PENDING' || this.#expiresAt === undefined;
    if (remaining.hidden) return;
    const seconds = Math.max(0, Math.ceil((this.#expiresAt - performance.now()) / 1e3));
    remaining.textContent = `${this.#timeLeft} ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
  }
}

customElements.get('payment-session') ?? customElements.define('payment-session', PaymentSession);
