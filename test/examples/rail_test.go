package examples

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// reportFault is what happens to a request of the bank instead of its answer; forward lets it through.
type reportFault func(w http.ResponseWriter, forward func(http.ResponseWriter))

// listPath is the path of the list of what a rail owes; "/refunds" alone is that of confirmations.
const listPath = "/internal/v1/refunds"

// internalProxy stands between the bank and the internal port. A fault meets each request to its path, or to one that ends with it.
func internalProxy(t *testing.T, faults map[string]reportFault) string {
	t.Helper()
	backend, err := url.Parse(api.Internal)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(backend)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pass := func(w http.ResponseWriter) { forward.ServeHTTP(w, r) }
		for path, fault := range faults {
			if r.URL.Path == path || r.URL.Path != listPath && strings.HasSuffix(r.URL.Path, path) {
				fault(w, pass)
				return
			}
		}
		pass(w)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// inTurn has one fault for each request, and none for those after them.
func inTurn(faults ...reportFault) reportFault {
	var requests atomic.Int32
	return func(w http.ResponseWriter, forward func(http.ResponseWriter)) {
		if n := int(requests.Add(1)) - 1; n < len(faults) {
			faults[n](w, forward)
			return
		}
		forward(w)
	}
}

// until has a fault for each request until the switch is on.
func until(working *atomic.Bool, fault reportFault) reportFault {
	return func(w http.ResponseWriter, forward func(http.ResponseWriter)) {
		if working.Load() {
			forward(w)
			return
		}
		fault(w, forward)
	}
}

// answerLost lets a request through and closes the connection instead of answering.
func answerLost(_ http.ResponseWriter, forward func(http.ResponseWriter)) {
	forward(httptest.NewRecorder())
	panic(http.ErrAbortHandler)
}

func unavailable(w http.ResponseWriter, _ func(http.ResponseWriter)) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
}

// press presses a button of the bank's page, and returns its heading.
func press(t *testing.T, bank *fixture.Bank, id, action string) string {
	t.Helper()
	response, err := http.PostForm(bank.URL+"/pay/"+id, url.Values{"action": {action}})
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return heading(string(page))
}

// pay presses the button until the bank has moved money: one that gets no answer in time moves none, and says so.
func pay(t *testing.T, bank *fixture.Bank, id string) (heading string) {
	t.Helper()
	await.Seeing(t, fixture.Patience, "the bank moves money", func() (string, bool) {
		heading = press(t, bank, id, "pay")
		return heading + "\n" + bank.Output.String(), len(bank.Payments()) > 0
	})
	return heading
}

func heading(page string) string {
	found := regexp.MustCompile(`<h1>(.*)</h1>`).FindStringSubmatch(page)
	if found == nil {
		return page
	}
	return found[1]
}

// awaitStep waits until the bank's only payment is at a step, and continues or waits for a person.
func awaitStep(t *testing.T, bank *fixture.Bank, step string, person bool) fixture.BankPayment {
	t.Helper()
	var payment fixture.BankPayment
	await.Seeing(t, fixture.Patience, "the payment is "+step, func() (string, bool) {
		payments := bank.Payments()
		if len(payments) != 1 {
			return fmt.Sprint(payments), false
		}
		payment = payments[0]
		return fmt.Sprintf("%+v\n%s", payment, &bank.Output), payment.Step == step && (payment.Problem != "") == person
	})
	return payment
}

func (s shop) read(id string) fixture.Answer {
	s.T.Helper()
	return s.call(http.MethodGet, fixture.Sessions+"/"+id, "")
}

// wantPaidOnce: the session is paid, and no money has to go back.
func (s shop) wantPaidOnce(id string) {
	s.T.Helper()
	if read := s.read(id); read.Text("status") != "COMPLETED" || strings.Contains(string(read.Raw), "refused") {
		s.T.Errorf("the session is %s", read.Raw)
	}
}

// Whatever is lost between the bank and the API, the payment is reported, and once.
func TestRail_Pay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path  string
		fault reportFault
	}{
		"all goes well":           {"/settlement", inTurn()},
		"answers to reports lost": {"/settlement", inTurn(answerLost, unavailable, answerLost)},
		"answers to holds lost":   {"/hold", inTurn(answerLost, unavailable)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{test.path: test.fault}), s.rail, "")
			if got := pay(t, bank, id); got != "Paid" && got != "We are telling the shop" {
				t.Fatalf("the bank says %q\n%s", got, &bank.Output)
			}
			awaitStep(t, bank, "settled", false)
			s.wantPaidOnce(id)
			if got := press(t, bank, id, "pay"); got != "Nothing to pay" || len(bank.Payments()) != 1 {
				t.Errorf("of a paid session the bank says %q, and has %v", got, bank.Payments())
			}
		})
	}
}

// answer answers as a server does that has not read the report, or does not know its session.
func answer(status int, code string) reportFault {
	return func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
		if code != "" {
			w.Header().Set("Error-Code", code)
		}
		w.WriteHeader(status)
	}
}

// An answer that refuses somebody else than the report is no answer to it: it is sent again until the session is paid.
func TestRail_Misconfigured(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]reportFault{
		"right missing":     answer(http.StatusForbidden, "account_not_allowed"),
		"token ended":       answer(http.StatusUnauthorized, ""),
		"wrong address":     answer(http.StatusNotFound, "path_not_found"),
		"proxy in between":  answer(http.StatusNotFound, ""),
		"too many requests": answer(http.StatusTooManyRequests, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": inTurn(fault, fault)}), s.rail, "")
			if got := pay(t, bank, id); got != "Paid" && got != "We are telling the shop" {
				t.Errorf("the bank says %q\n%s", got, &bank.Output)
			}
			awaitStep(t, bank, "settled", false)
			s.wantPaidOnce(id)
		})
	}
}

// A report that the API refuses is for a person. Until then nobody may pay the session once more, also after a restart of the bank.
func TestRail_ReportRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": answer(http.StatusNotFound, "session_not_found")}), s.rail, "")
	const checking = "We are checking this payment"
	if got := pay(t, bank, id); got != checking && got != "We are telling the shop" {
		t.Errorf("the bank says %q\n%s", got, &bank.Output)
	}
	for range 2 {
		awaitStep(t, bank, "moved", true)
		if got := press(t, bank, id, "pay"); got != checking {
			t.Errorf("to who presses again, the bank says %q", got)
		}
		if page, err := fixture.Call(http.DefaultClient, bank.URL, http.MethodGet, "/pay/"+id, "", ""); err != nil || heading(string(page.Raw)) != checking {
			t.Errorf("to who reads again, the bank says\n%s\n%v", page.Raw, err)
		}
		bank.Kill()
		bank.Start()
	}
	awaitStep(t, bank, "moved", true)
}

// Who presses twice pays once.
func TestRail_PressedTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, api.Internal, s.rail, "")
	var presses sync.WaitGroup
	for range 5 {
		presses.Go(func() { press(t, bank, id, "pay") })
	}
	presses.Wait()
	pay(t, bank, id)
	awaitStep(t, bank, "settled", false)
	s.wantPaidOnce(id)
}

// A bank that is killed between the movement of money and the answer to its report goes on where it was.
func TestRail_Killed(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]reportFault{"report not received": unavailable, "answer lost": answerLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			var working atomic.Bool
			bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": until(&working, report)}), s.rail, "")
			if got := pay(t, bank, id); got != "We are telling the shop" {
				t.Errorf("the bank says %q", got)
			}
			awaitStep(t, bank, "moved", false)
			bank.Kill()
			working.Store(true)
			bank.Start()
			awaitStep(t, bank, "settled", false)
			s.wantPaidOnce(id)
		})
	}
}

// payLate pays at a bank whose reports arrive after those of another payment, which had not asked first: the money goes back.
func (s shop) payLate(id string, refunds reportFault) *fixture.Bank {
	t := s.T.(*testing.T)
	t.Helper()
	var settling atomic.Bool
	bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": until(&settling, unavailable), "/refunds": refunds}), s.rail, "")
	if got := pay(t, bank, id); got != "We are telling the shop" {
		t.Errorf("the bank says %q\n%s", got, &bank.Output)
	}
	s.settle(id, "COMPLETED")
	settling.Store(true)
	return bank
}

// wantPaidBack: the bank has given the money of its late payment back once, and the merchant and the payer know.
func (s shop) wantPaidBack(bank *fixture.Bank, id string) {
	s.T.Helper()
	ref, text := bank.Payments()[0].Ref, ""
	want := fmt.Sprintf(`"paymentRef":%q,"own":true,"outcome":"COMPLETED","amountCents":1250,`, ref)
	await.Seeing(s.T, fixture.Patience, "the refund is confirmed", func() (string, bool) {
		text = string(s.send(api.Internal, http.MethodGet, "/internal/v1/sessions/"+id, s.rail, "").Raw)
		return text + "\n" + bank.Output.String(), strings.Contains(text, want) && strings.Contains(text, `"refundedCents":1250`)
	})
	if strings.Count(text, `"refundedCents":1250`) != 1 || strings.Contains(text, "REFUND_REQUIRED") {
		s.T.Errorf("the rail reads %s", text)
	}
	s.wantRefunds(bank, ref, 1250)
	if got := press(s.T.(*testing.T), bank, id, "pay"); got != "Sent back" {
		s.T.Errorf("the bank says %q", got)
	}
}

// wantRefunds: these amounts of a payment are all that the bank has ever given back, and it owes no more.
func (s shop) wantRefunds(bank *fixture.Bank, ref string, amounts ...int64) {
	s.T.Helper()
	s.Eventually("the rail owes nothing", func() bool {
		return string(s.send(api.Internal, http.MethodGet, listPath, s.rail, "").Raw) == "{\"refunds\":[]}\n"
	})
	var got []int64
	for _, refund := range bank.Refunds() {
		got = append(got, refund.AmountCents)
		if refund.Of != ref {
			s.T.Errorf("the bank has given back %+v", refund)
		}
	}
	if !slices.Equal(got, amounts) {
		s.T.Errorf("the bank has given back %v, want %v\n%s", got, amounts, &bank.Output)
	}
}

// paid pays at a bank.
func (s shop) paid(faults map[string]reportFault) (id string, bank *fixture.Bank) {
	t := s.T.(*testing.T)
	t.Helper()
	id = s.create("1001")
	bank = fixture.StartBank(t, internalProxy(t, faults), s.rail, "")
	pay(t, bank, id)
	awaitStep(t, bank, "settled", false)
	return id, bank
}

// refund asks for a refund of 5.00.
func (s shop) refund(id string) {
	s.T.Helper()
	answer := s.call(http.MethodPost, fixture.Sessions+"/"+id+"/refunds", `{"amountCents": 500}`, "Idempotency-Key", "return-1001")
	if answer.Status != http.StatusCreated {
		s.T.Fatalf("%d %s", answer.Status, answer.Raw)
	}
}

// awaitRefund waits until the request for a refund has a status, and returns the session as its merchant reads it.
func (s shop) awaitRefund(bank *fixture.Bank, id, status string) (read string) {
	s.T.Helper()
	await.Seeing(s.T, fixture.Patience, "the refund is "+status, func() (string, bool) {
		read = string(s.read(id).Raw)
		return read + "\n" + bank.Output.String(), strings.Contains(read, `"status":"`+status+`","amountCents":500`)
	})
	return read
}

// Money that came too late goes back once, and is confirmed once, whatever is lost between the bank and the API.
func TestRail_Refund(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]reportFault{
		"all goes well": inTurn(), "answers lost": inTurn(answerLost, unavailable, answerLost), "right missing": inTurn(answer(http.StatusForbidden, "account_not_allowed")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			s.wantPaidBack(s.payLate(id, fault), id)
		})
	}
}

// killing is a fault of requests, which get 503 until it is armed. The first one after that kills the bank, and all later ones pass.
type killing struct {
	armed, over atomic.Bool
	kill        func()
	done        chan struct{}
}

// killed are the places in a request at which a bank is killed.
var killed = map[string]func(w http.ResponseWriter, forward func(http.ResponseWriter), kill func()){
	"not received": func(_ http.ResponseWriter, _ func(http.ResponseWriter), kill func()) { kill() },
	"not answered": func(_ http.ResponseWriter, forward func(http.ResponseWriter), kill func()) {
		forward(httptest.NewRecorder())
		kill()
	},
	"answered": func(w http.ResponseWriter, forward func(http.ResponseWriter), kill func()) {
		forward(w)
		_ = http.NewResponseController(w).Flush()
		kill()
	},
}

func (k *killing) fault(place func(http.ResponseWriter, func(http.ResponseWriter), func())) reportFault {
	return func(w http.ResponseWriter, forward func(http.ResponseWriter)) {
		switch {
		case k.over.Load():
			forward(w)
		case k.armed.CompareAndSwap(true, false):
			k.over.Store(true)
			place(w, forward, k.kill)
			close(k.done)
		default:
			unavailable(w, forward)
		}
	}
}

// A bank that is killed at any step of a refund, and has no file but its books, pays the merchant's customer back once, and confirms it. One whose
// customer has closed the account rejects it, and pays nothing.
func TestRail_RefundRequestKilled(t *testing.T) {
	t.Parallel()
	for _, path := range []string{listPath, "/refunds"} {
		for place, at := range killed {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s, account closed %v", path, place, closed), func(t *testing.T) {
					t.Parallel()
					s := newShop(t)
					k := &killing{done: make(chan struct{})}
					id, bank := s.paid(map[string]reportFault{path: k.fault(at)})
					k.kill = bank.Kill
					if closed {
						if got := press(t, bank, id, "close"); got != "Account closed" {
							t.Errorf("the bank says %q", got)
						}
					}
					s.refund(id)
					k.armed.Store(true)
					<-k.done
					bank.Start()
					ref := bank.Payments()[0].Ref
					if closed {
						if read := s.awaitRefund(bank, id, "REJECTED"); !strings.Contains(read, `"rejectReason":"account closed"`) {
							t.Errorf("the merchant reads %s", read)
						}
						s.wantRefunds(bank, ref)
						return
					}
					if read := s.awaitRefund(bank, id, "CONFIRMED"); strings.Count(read, `"refundRef"`) != 1 || !strings.Contains(read, `"refundedCents":500`) {
						t.Errorf("the merchant reads %s", read)
					}
					s.wantRefunds(bank, ref, 500)
				})
			}
		}
	}
}

// The same of a payment that came too late: a bank that is killed at any step after its report gives the money back once.
func TestRail_RefundKilled(t *testing.T) {
	t.Parallel()
	for _, path := range []string{listPath, "/refunds"} {
		for place, at := range killed {
			t.Run(path+" "+place, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				id := s.create("1001")
				var settling atomic.Bool
				k := &killing{done: make(chan struct{})}
				bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": until(&settling, unavailable), path: k.fault(at)}), s.rail, "")
				k.kill = bank.Kill
				pay(t, bank, id)
				s.settle(id, "COMPLETED")
				settling.Store(true)
				s.Eventually("the API has refused the payment", func() bool {
					return strings.Contains(string(s.send(api.Internal, http.MethodGet, "/internal/v1/sessions/"+id, s.rail, "").Raw), `"own":true,"outcome":"COMPLETED"`)
				})
				k.armed.Store(true)
				<-k.done
				bank.Start()
				s.wantPaidBack(bank, id)
			})
		}
	}
}

// A confirmation that the API refuses is for a person. The payer has the money, and does not get it again, also after a restart of the bank.
func TestRail_RefundRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := s.payLate(id, answer(http.StatusConflict, "refund_conflict"))
	for n := range 2 {
		await.Seeing(t, fixture.Patience, "the bank asks for a person", func() (string, bool) {
			output := bank.Output.String()
			return output, strings.Count(output, "a person must look") == n+1 && strings.Count(output, "refund_conflict") == n+1
		})
		await.Seeing(t, fixture.Patience, "the bank says that it is sent back", func() (string, bool) { // after a start it reports all again
			got := press(t, bank, id, "pay")
			return got, got == "Sent back"
		})
		bank.Kill()
		bank.Start()
	}
	if refunds := bank.Refunds(); len(refunds) != 1 {
		t.Errorf("the bank has given back %v\n%s", refunds, &bank.Output)
	}
}

// A bank gives no money back that it does not have, and asks for a person: here somebody else has reported the payment as the same rail.
func TestRail_RefundOfUnknownPayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	s.settle(id, "COMPLETED")
	bank := fixture.StartBank(t, api.Internal, s.rail, "")
	s.refund(id)
	await.Seeing(t, fixture.Patience, "the bank asks for a person", func() (string, bool) {
		return bank.Output.String(), strings.Contains(bank.Output.String(), "a person must look at rf_")
	})
	s.awaitRefund(bank, id, "REQUESTED")
	if refunds := bank.Refunds(); len(refunds) > 0 {
		t.Errorf("the bank has given back %v", refunds)
	}
}

// A payment that the session refused and does not keep is not in the list: the bank asks for a person.
func TestRail_RefusedPaymentNotListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/settlement": func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
		_, _ = io.WriteString(w, `{"action": "REFUND_REQUIRED"}`)
	}}), s.rail, "")
	pay(t, bank, id)
	await.Seeing(t, fixture.Patience, "the bank asks for a person", func() (string, bool) {
		return bank.Output.String(), strings.Contains(bank.Output.String(), "give the money back")
	})
}

// Two payers of one code, at two banks at once: one pays, the other is refused before any money moves.
func TestRail_TwoPayers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	banks := []*fixture.Bank{fixture.StartBank(t, api.Internal, s.rail, ""), fixture.StartBank(t, api.Internal, newShop(t).rail, "")}
	headings := make([]string, len(banks))
	paying := func() (all []int) {
		for i, bank := range banks {
			if len(bank.Payments()) > 0 {
				all = append(all, i)
			}
		}
		return all
	}
	await.Seeing(t, fixture.Patience, "a bank moves money", func() (string, bool) {
		var phones sync.WaitGroup
		for i, bank := range banks {
			phones.Go(func() { headings[i] = press(t, bank, id, "pay") })
		}
		phones.Wait()
		return fmt.Sprint(headings), len(paying()) > 0
	})
	both := paying()
	if len(both) != 1 {
		t.Fatalf("%d banks have moved money; their payers see %q", len(both), headings)
	}
	awaitStep(t, banks[both[0]], "settled", false)
	if other := headings[1-both[0]]; other == "Paid" {
		t.Errorf("to who does not pay the bank says %q", other)
	}
	s.wantPaidOnce(id)
}

// While another rail holds the session, the bank refuses its payer, and the same page pays once it is released.
func TestRail_Held(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, api.Internal, s.rail, "")
	other := newShop(t).rail
	hold := func(seconds int) fixture.Answer {
		return s.send(api.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/hold", other, fmt.Sprintf(`{"paymentRef": "card-1", "seconds": %d}`, seconds))
	}
	s.Eventually("the other rail holds the session", func() bool { return hold(120).Status == http.StatusOK })
	await.Seeing(t, fixture.Patience, "the bank refuses its payer", func() (string, bool) {
		got := press(t, bank, id, "pay")
		return got + "\n" + bank.Output.String(), got == "Somebody is paying"
	})
	if len(bank.Payments()) > 0 {
		t.Errorf("the bank has moved money: %v", bank.Payments())
	}
	if released := hold(0); released.Status != http.StatusOK {
		t.Fatalf("the release gets %d: %s", released.Status, released.Raw)
	}
	pay(t, bank, id)
	awaitStep(t, bank, "settled", false)
	s.wantPaidOnce(id)
}

// A code that expires before the money has moved is not paid, and its payer reads why.
func TestRail_TooLate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/hold": answer(http.StatusConflict, "expires_too_soon")}), s.rail, "")
	await.Seeing(t, fixture.Patience, "the bank refuses its payer", func() (string, bool) {
		got := press(t, bank, id, "pay")
		return got + "\n" + bank.Output.String(), got == "Too late"
	})
	if len(bank.Payments()) > 0 {
		t.Errorf("the bank has moved money: %v", bank.Payments())
	}
}

// A payer who gets no answer in time has not paid, and the shop may cancel: the bank has released what it may hold.
func TestRail_HoldUnanswered(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	var working, answered atomic.Bool
	lost := until(&working, answerLost)
	hold := func(w http.ResponseWriter, forward func(http.ResponseWriter)) {
		lost(w, func(w http.ResponseWriter) {
			forward(w)
			answered.Store(working.Load())
		})
	}
	bank := fixture.StartBank(t, internalProxy(t, map[string]reportFault{"/hold": hold}), s.rail, "")
	if got := press(t, bank, id, "pay"); got == "Paid" || len(bank.Payments()) > 0 {
		t.Errorf("the bank says %q, and has %v\n%s", got, bank.Payments(), &bank.Output)
	}
	working.Store(true)
	s.Eventually("the bank releases the session", answered.Load)
	s.Eventually("the shop can cancel", func() bool {
		return s.send(api.Public, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", s.key, "").Status == http.StatusOK
	})
}

func TestRail_Decline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.create("1001")
	bank := fixture.StartBank(t, api.Internal, s.rail, "")
	if got := press(t, bank, id, "decline"); got != "Declined" {
		t.Errorf("the bank says %q", got)
	}
	if read := s.read(id); read.Text("status") != "FAILED" || len(bank.Payments()) > 0 {
		t.Errorf("the session is %s, and the bank has %v", read.Raw, bank.Payments())
	}
}

// What the bank must not pay: it moves no money, and its page says why.
func TestRail_NotPaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	bank := fixture.StartBank(t, api.Internal, s.rail, "")
	cancelled := s.create("1001")
	s.call(http.MethodPost, fixture.Sessions+"/"+cancelled+"/cancel", "")
	_, testKey := s.ApiKey("sandbox", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Mode = v1alpha1.ModeTest })
	var test string
	s.Eventually("the test key works", func() bool {
		test = s.send(api.Public, http.MethodPost, fixture.Sessions, testKey, `{"amountCents": 1250}`).Text("sessionId")
		return test != ""
	})
	pending := s.create("1002")
	for id, want := range map[string]string{
		cancelled: "Nothing to pay", test: "Payment not found", pending + "x": "Payment not found", "x": "Payment not found",
		pending[:len(pending)-1] + "-": "Payment not found",
	} {
		if got := press(t, bank, id, "pay"); got != want {
			t.Errorf("%s: the bank says %q, want %q", id, got, want)
		}
	}
	foreign, err := fixture.Call(http.DefaultClient, bank.URL, http.MethodPost, "/pay/"+pending, "", "action=pay",
		"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site")
	if err != nil || foreign.Status != http.StatusForbidden {
		t.Errorf("a form of another site: %d, %v", foreign.Status, err)
	}
	if payments := bank.Payments(); len(payments) > 0 {
		t.Errorf("the bank has moved money: %v", payments)
	}
}
