package store_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// askedFor are the requests for refunds of a payment of 1250 that this model knows, by their Idempotency-Keys: not all fit. 0 is all that is left.
var askedFor = [...]int64{500, 400, 0, 450, 350}

// unasked are refunds that the rail of a payment confirms without being asked.
var unasked = [...]int64{300, 600, 800}

// refundCall is one call about the refunds of a session, of which two rails report a payment, and refundSeen what came of it.
type refundCall struct {
	operation string       // settle, request, confirm, reject, pay or read
	rail      session.Rail // not of request and read
	number    int          // of askedFor, of unasked for pay
	cents     int64        // of request, confirm and pay
}

type refundSeen struct {
	decision session.Decision
	request  requestSeen // of request
	all      refundsSeen // of read
}

// requestSeen is a request as its merchant sees it; no status: there is none.
type requestSeen struct {
	status session.RefundStatus
	cents  int64
	at     int64 // in milliseconds
}

// refundsSeen are the refunds of a session: what it knows of each request, and the sum that went back of each rail's payment.
type refundsSeen struct {
	requests  [len(askedFor)]requestSeen
	confirmed [len(twoRails)]int64
}

var twoRails = [...]session.Rail{bank, card}

// refundState is what a session must know. The first payment completes it, and the other one is refused.
type refundState struct {
	seen    refundsSeen
	settled [len(twoRails)]bool
	taken   int // the number of the rail whose payment completed it
	paid    [len(twoRails)][len(unasked)]bool
	early   [len(twoRails)][len(askedFor)]int64 // cents confirmed under the name of a request that the session does not know as one of this rail
}

const nothingTaken = -1

// open is the sum of the open requests.
func (s *refundState) open() (cents int64) {
	for _, request := range s.seen.requests {
		if request.status == session.RefundRequested {
			cents += request.cents
		}
	}
	return cents
}

// displace rejects the newest open requests that do not fit any more.
func (s *refundState) displace(ids [len(askedFor)]string) {
	for s.seen.confirmed[s.taken]+s.open() > 1250 {
		newest := nothingTaken
		for i, request := range s.seen.requests {
			if request.status == session.RefundRequested && (newest == nothingTaken || request.at > s.seen.requests[newest].at ||
				request.at == s.seen.requests[newest].at && ids[i] > ids[newest]) {
				newest = i
			}
		}
		s.seen.requests[newest].status = session.RefundRejected
	}
}

// refundModel is how callers must see the refunds of a session, whose requests have these ids.
func refundModel(ids [len(askedFor)]string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return refundState{taken: nothingTaken} },
		Step: func(state, input, output any) (bool, any) {
			s, call, answer := state.(refundState), input.(refundCall), output.(refundSeen)
			if call.operation == "read" {
				return answer.all == s.seen, s
			}
			decision := s.apply(call, answer.request.at, ids)
			fits := answer.decision == decision
			if call.operation == "request" && (decision == session.Applied || decision == session.Repeated) {
				fits = fits && answer.request == s.seen.requests[call.number]
			}
			return fits, s
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// apply changes the state as a call does, by the rules of package session. at is when a request was recorded.
func (s *refundState) apply(call refundCall, at int64, ids [len(askedFor)]string) session.Decision {
	by := slices.Index(twoRails[:], call.rail)
	switch call.operation {
	case "settle":
		switch {
		case s.settled[by] && by == s.taken:
			return session.Repeated
		case s.settled[by]:
			return session.RefundedAgain
		case s.taken == nothingTaken:
			s.settled[by], s.taken = true, by
			return session.Applied
		default:
			s.settled[by] = true
			return session.Late
		}
	case "request":
		earlier, left := s.seen.requests[call.number], int64(0)
		if s.taken != nothingTaken {
			left = 1250 - s.seen.confirmed[s.taken] - s.open()
		}
		known, cents := session.RequestUnknown, call.cents
		if earlier.status != "" {
			known = session.RequestSame
		} else if s.taken != nothingTaken && s.early[s.taken][call.number] != 0 {
			confirmed := s.early[s.taken][call.number]
			if cents != 0 && cents != confirmed {
				return session.Conflict
			}
			s.seen.requests[call.number] = requestSeen{session.RefundConfirmed, confirmed, at}
			return session.Applied
		}
		if cents == 0 {
			cents = left
		}
		decision := session.DecideRefundRequest(known, s.taken != nothingTaken, cents > 0 && cents <= left, true)
		if decision == session.Applied {
			s.seen.requests[call.number] = requestSeen{session.RefundRequested, cents, at}
		}
		return decision
	case "reject":
		status := s.seen.requests[call.number].status
		if by != s.taken {
			status = ""
		}
		if s.early[by][call.number] != 0 {
			status = session.RefundConfirmed
		}
		decision := session.DecideRejection(status)
		if decision == session.Applied {
			s.seen.requests[call.number].status = session.RefundRejected
		}
		return decision
	case "confirm":
		known, request := session.RefundUnknown, &s.seen.requests[call.number]
		switch early := s.early[by][call.number]; {
		case early != 0 && early == call.cents, by == s.taken && request.status == session.RefundConfirmed && request.cents == call.cents:
			known = session.RefundSame
		case early != 0, by == s.taken && request.status == session.RefundConfirmed, by != s.taken && request.status != "" && s.settled[by]:
			known = session.RefundOther
		}
		decision := session.DecideRefund(known, s.settled[by], s.seen.confirmed[by]+call.cents <= 1250, true)
		if decision == session.Applied {
			s.seen.confirmed[by] += call.cents
			if request.status == "" {
				s.early[by][call.number] = call.cents
			} else { // with what has moved, whatever was asked for
				request.status, request.cents = session.RefundConfirmed, call.cents
			}
			if by == s.taken {
				s.displace(ids)
			}
		}
		return decision
	default: // pay
		known := session.RefundUnknown
		if s.paid[by][call.number] {
			known = session.RefundSame
		}
		decision := session.DecideRefund(known, s.settled[by], s.seen.confirmed[by]+call.cents <= 1250, true)
		if decision == session.Applied {
			s.paid[by][call.number] = true
			s.seen.confirmed[by] += call.cents
			if by == s.taken {
				s.displace(ids)
			}
		}
		return decision
	}
}

// TestRefunds_Linearizable checks that what merchant and rails see of the refunds of a session, at two replicas at once, is what they could have seen
// one after the other, and that each rail has given back at most its payment.
func TestRefunds_Linearizable(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	const rounds, callers, callsEach = 48, 6, 16
	met := map[string]int{}
	for round := range rounds {
		asks := merchant()
		id := mustCreate(t, replicas[0], asks, newSession()).Session.ID
		var ids [len(askedFor)]string
		for i := range ids {
			ids[i] = session.NewRefundID(id, requestKey(t, i))
		}
		histories := make([][]porcupine.Operation, callers)
		began, start := time.Now(), make(chan struct{})
		var calling sync.WaitGroup
		for caller := range callers {
			calling.Go(func() {
				<-start
				var known refundsSeen // from the caller's last read
				for n := range callsEach {
					call, possible := refundCallOf(round, caller, n, known)
					if !possible {
						call = refundCall{operation: "read"}
					}
					operation := porcupine.Operation{ClientId: caller, Input: call, Call: int64(time.Since(began))}
					answer, err := askRefund(t, replicas[(caller+n)%2], asks, id, ids, call)
					if err != nil {
						t.Error(err)
						return
					}
					if call.operation == "read" {
						known = answer.all
					}
					operation.Output, operation.Return = answer, int64(time.Since(began))
					histories[caller] = append(histories[caller], operation)
				}
			})
		}
		close(start)
		calling.Wait()
		last, err := askRefund(t, replicas[0], asks, id, ids, refundCall{operation: "read"})
		must(t, err)
		history := append(slices.Concat(histories...), porcupine.Operation{
			Input: refundCall{operation: "read"}, Output: last, Call: int64(time.Since(began)), Return: math.MaxInt64,
		})
		if result := porcupine.CheckOperationsTimeout(refundModel(ids), history, time.Minute); result != porcupine.Ok {
			for _, operation := range history {
				t.Logf("%d %d..%d %+v -> %+v", operation.ClientId, operation.Call, operation.Return, operation.Input, operation.Output)
			}
			t.Fatalf("round %d: the history of %d calls is %s, want one that fits a session", round, len(history), result)
		}
		for _, operation := range history {
			met[operation.Input.(refundCall).operation+" "+string(operation.Output.(refundSeen).decision)]++
		}
		for _, request := range last.all.requests {
			met[string(request.status)]++
		}
		for _, cents := range last.all.confirmed {
			if cents > 1250 {
				t.Errorf("round %d: %d went back of 1250", round, cents)
			}
		}
		checkOwed(t, replicas[1], id, last.all)
	}
	for _, wanted := range []string{
		"settle applied", "settle late", "request applied", "request repeated", "request exceeds_payment", "confirm applied", "confirm repeated", "confirm exceeds_payment",
		"reject applied", "reject conflict", "pay applied", "pay exceeds_payment", string(session.RefundRejected),
	} {
		if met[wanted] == 0 {
			t.Errorf("no call was answered so: %s", wanted)
		}
	}
	t.Logf("%d rounds: %v", rounds, met)
}

// checkOwed checks that the lists of the rails have each open request, and what is left of the refused payment.
func checkOwed(t *testing.T, s *services, id session.ID, seen refundsSeen) {
	t.Helper()
	story, err := s.ReadStory(t.Context(), id)
	must(t, err)
	want, got := int64(0), int64(0)
	for _, request := range seen.requests {
		if request.status == session.RefundRequested {
			want += request.cents
		}
	}
	for _, refused := range story.Refused {
		want += refused.AmountCents - session.SumRefunds(refused.Refunds)
	}
	for _, rail := range twoRails {
		owed, err := s.Owed(t.Context(), rail, store.OwedPlace{}, 1000)
		must(t, err)
		for _, refund := range owed.Refunds {
			if refund.Session.ID == id {
				got += refund.Refund.AmountCents
			}
		}
	}
	if got != want {
		t.Errorf("rails read that they owe %d, want %d", got, want)
	}
}

// refundCallOf returns a call, and whether it can be made by who knows so much.
func refundCallOf(round, caller, n int, known refundsSeen) (refundCall, bool) {
	mix := round*7 + caller*5 + n*3
	by, number := twoRails[(round+caller)%2], (mix/2)%len(askedFor)
	switch request := known.requests[number]; mix % 8 {
	case 0, 1:
		return refundCall{operation: "settle", rail: by}, n < 4
	case 2, 3:
		return refundCall{operation: "request", number: number, cents: askedFor[number]}, true
	case 4:
		cents := request.cents
		if request.status == "" && round%4 == 1 {
			cents = askedFor[number] // as of a request that Redis has lost
		}
		return refundCall{operation: "confirm", rail: by, number: number, cents: cents}, cents != 0
	case 5:
		return refundCall{operation: "reject", rail: by, number: number}, request.status != ""
	case 6:
		return refundCall{operation: "pay", rail: by, number: mix % len(unasked), cents: unasked[mix%len(unasked)]}, round%3 == 0
	default:
		return refundCall{}, false
	}
}

func requestKey(t *testing.T, number int) session.IdempotencyKey {
	t.Helper()
	return idempotencyKey(t, fmt.Sprintf("refund-%d", number))
}

func askRefund(
	t *testing.T, s *services, asks admission.Request, id session.ID, ids [len(askedFor)]string, call refundCall,
) (refundSeen, error) {
	t.Helper()
	switch call.operation {
	case "settle":
		got, err := s.Settle(t.Context(), id, by(call.rail, paid("1")))
		return refundSeen{decision: settledDecision(got)}, err
	case "request":
		_, got, err := s.RequestRefund(t.Context(), asks, id, asking(t, fmt.Sprintf("refund-%d", call.number), call.cents))
		answer, err := requestAnswer(got.Repeated, err)
		if err == nil && answer.decision == session.Applied || answer.decision == session.Repeated {
			answer.request = requestSeen{got.Status, got.AmountCents, got.RequestedAt.UnixMilli()}
		}
		return answer, err
	case "confirm":
		got, err := s.Refund(t.Context(), id, session.Refund{Rail: call.rail, PaymentRef: "1", Ref: ids[call.number], AmountCents: call.cents})
		return requestAnswer(got.Repeated, err)
	case "reject":
		got, err := s.RejectRefund(t.Context(), id, store.Rejection{Rail: call.rail, PaymentRef: "1", RefundID: ids[call.number]})
		return requestAnswer(got.Repeated, err)
	case "pay":
		ref := fmt.Sprintf("own-%d", call.number)
		got, err := s.Refund(t.Context(), id, session.Refund{Rail: call.rail, PaymentRef: "1", Ref: ref, AmountCents: call.cents})
		return requestAnswer(got.Repeated, err)
	default:
		_, story, err := s.Story(t.Context(), asks, id)
		seen := refundsSeen{}
		for _, request := range story.Requests {
			seen.requests[slices.Index(ids[:], request.ID)] = requestSeen{request.Status, request.AmountCents, request.RequestedAt.UnixMilli()}
		}
		if story.Session.Status == session.Completed {
			seen.confirmed[slices.Index(twoRails[:], story.Session.PaymentRail)] = session.SumRefunds(story.Refunds)
		}
		for _, refused := range story.Refused {
			seen.confirmed[slices.Index(twoRails[:], refused.Rail)] = session.SumRefunds(refused.Refunds)
		}
		return refundSeen{all: seen}, err
	}
}

// requestAnswer is what merchant or rail learn of the decision.
func requestAnswer(repeated bool, err error) (refundSeen, error) {
	for _, known := range []struct {
		err      error
		decision session.Decision
	}{
		{store.ErrNotCompleted, session.NotCompleted},
		{store.ErrRefundExceedsPayment, session.ExceedsPayment},
		{store.ErrRequestConfirmed, session.Conflict},
		{store.ErrRefundConflict, session.Conflict},
		{store.ErrNoRequest, session.NoRequest},
		{store.ErrNoPayment, session.NoPayment},
	} {
		if errors.Is(err, known.err) {
			return refundSeen{decision: known.decision}, nil
		}
	}
	if repeated {
		return refundSeen{decision: session.Repeated}, err
	}
	return refundSeen{decision: session.Applied}, err
}
