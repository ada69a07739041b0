package browser

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

func TestOneStreamIsEnough(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	page.Until("the time left is known", "globalThis.expiresIn === 900")
	s.set("COMPLETED", none)
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	s.ended(page)
	if got := len(s.asked); got != 1 {
		t.Errorf("%d requests", got)
	}
}

func TestAMissingSessionEndsTheRequests(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("NOT_FOUND", none)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
	page.AllowErrors("404")
	page.Open(s.url)
	awaitSeen(page, "NOT_FOUND")
	s.ended(page)
}

func TestABufferedStreamBecomesLongPollsAndAStreamAgain(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", buffered)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	s.awaitKinds("stream poll wait") // the first answer does not wait
	s.set("PENDING", none)
	s.awaitStream(page)
	s.set("COMPLETED", none)
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	s.ended(page)
}

func TestLongPollsShowTheEnd(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", buffered)
	page := s.open(fast)
	s.awaitKinds("stream poll wait")
	s.set("EXPIRED", buffered)
	awaitSeen(page, "PENDING of Acme, EXPIRED of Acme")
	s.ended(page)
}

func TestRefusedStreamsBecomePolls(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", full)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
	page.AllowErrors("503")
	page.Open(s.url)
	awaitSeen(page, "PENDING of Acme")
	s.awaitKinds("stream poll stream") // it tried again
	s.set("PENDING", none)
	s.awaitStream(page)
	s.set("FAILED", none)
	awaitSeen(page, "PENDING of Acme, FAILED of Acme")
	s.ended(page)
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	s.set("PENDING", limited)
	page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast + `
		globalThis.sent = []; const send = fetch; globalThis.fetch = (...all) => { sent.push(performance.now()); return send(...all) }`})
	page.AllowErrors("429")
	page.Open(s.url)
	page.Until("it asked again", "sent.length > 2")
	if pause := browsertest.Eval[float64](page, "Math.min(sent[1] - sent[0], sent[2] - sent[1])"); pause < 9e3 {
		t.Errorf("asked again after %s", time.Duration(pause)*time.Millisecond)
	}
	awaitSeen(page, "offline")
	s.set("COMPLETED", none)
	awaitSeen(page, "offline, online, COMPLETED of Acme")
	s.ended(page)
}

func TestASilentStreamIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	s.mu.Lock()
	s.status = "COMPLETED" // without telling the stream
	s.mu.Unlock()
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if got := s.kinds(); got != "stream" {
		t.Errorf("asked for %s", got)
	}
	s.ended(page)
}

func TestAnswersOfOthersAreNoStatus(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]fault{"captive portal": portal, "proxy": notOurs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStatusServer(t)
			s.set("PENDING", is)
			page := sharedBrowser.NewPage(t, browsertest.Settings{Script: fast})
			page.AllowErrors("404")
			page.Open(s.url)
			awaitSeen(page, "offline")
			s.set("COMPLETED", none)
			awaitSeen(page, "offline, online, COMPLETED of Acme")
			s.ended(page)
		})
	}
}

// On these pages timers never fire: only the return itself can show the end.
func TestAFrozenPageIsRightWhenItReturns(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	page.Freeze()
	s.awaitIdle(page)
	s.set("COMPLETED", none)
	page.Resume()
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if total, _, most := page.Requests(s.url + "/status"); total != 2 || most != 1 {
		t.Errorf("%d requests, %d at once", total, most)
	}
}

func TestAPageWithoutNetworkIsRightWhenItReturns(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	page.AllowErrors("net::ERR_INTERNET_DISCONNECTED")
	page.SetOffline(true)
	awaitSeen(page, "PENDING of Acme, offline")
	s.set("CANCELLED", none)
	page.SetOffline(false)
	awaitSeen(page, "PENDING of Acme, offline, online, CANCELLED of Acme")
	if _, _, most := page.Requests(s.url + "/status"); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}

func TestAStoppedWatchIsSilent(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(fast)
	awaitSeen(page, "PENDING of Acme")
	page.Do("watch.stop()")
	s.awaitIdle(page)
	s.set("COMPLETED", none)
	s.ended(page)
	awaitSeen(page, "PENDING of Acme")
}

func TestCheckAsksAtOnce(t *testing.T) {
	t.Parallel()
	s := newStatusServer(t)
	page := s.open(slow)
	awaitSeen(page, "PENDING of Acme")
	s.mu.Lock()
	s.status = "COMPLETED" // without telling the stream
	s.mu.Unlock()
	page.Do("watch.check()")
	awaitSeen(page, "PENDING of Acme, COMPLETED of Acme")
	if _, _, most := page.Requests(s.url + "/status"); most != 1 {
		t.Errorf("%d requests at once", most)
	}
}
