//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// orderModel checks the history of one order.
var orderModel = porcupine.Model{
	Init: func() any { return orderState{} },
	Step: func(state, input, output any) (bool, any) {
		return stepOrder(state.(orderState), input.(orderCall), output.(orderAnswer))
	},
	DescribeOperation: describeOrder,
}

// audit checks all that the storm has left: what callers were told, what Redis holds, what the receiver heard.
func (s *storm) audit() (seen string) {
	s.t.Helper()
	c := newCaller()
	unknown := 0
	for _, o := range s.orders {
		if o.id == "" {
			continue // never acknowledged
		}
		// The last look is an operation like the others, and so are acknowledged sessions found again.
		operation := porcupine.Operation{ClientId: stormCallers, Call: int64(time.Since(s.began)), Input: orderCall{operation: "read"}}
		got, err := c.call(s.replicas[0].public, http.MethodGet, sessions+"/"+o.id, s.key, "")
		if err != nil {
			s.t.Fatal(err)
		}
		operation.Output, operation.Return = answerOf(got), int64(time.Since(s.began))
		o.history = append(o.history, operation)
		switch result := porcupine.CheckOperationsTimeout(orderModel, o.history, time.Minute); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			unknown++
		default:
			s.t.Errorf("%s: its callers saw what is not one session that ends once:\n%s", o.name(), historyOf(o))
		}
	}
	if unknown > len(s.orders)/100 {
		s.t.Errorf("%d of %d histories are too long to be checked", unknown, len(s.orders))
	}
	sessions := s.auditSessions()
	events := s.eventsOf(sessions)
	again := s.hooks.waitFor(s.t, events)
	s.consumer.audit(sessions)
	if s.consumer.told > 0 {
		s.t.Errorf("the consumer was told %d times that events are lost, and Redis has lost none", s.consumer.told)
	}
	return fmt.Sprintf("%d orders, %d calls answered and %d not: every history linearizable, %d sessions, none twice or lost; "+
		"%d events, each recorded once and delivered, %d more than once; each once in the feed, for a consumer killed %d times",
		len(s.orders), s.calls.Load(), s.maybes.Load(), len(sessions), len(events), again, s.consumer.killed)
}

func historyOf(o *order) string {
	var text strings.Builder
	for _, operation := range slices.SortedFunc(slices.Values(o.history), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
		fmt.Fprintf(&text, "%d %10d..%d %s\n", operation.ClientId, operation.Call, operation.Return, describeOrder(operation.Input, operation.Output))
	}
	return text.String()
}

// auditSessions returns the fields of all sessions by id: at most one for each order, and that which was acknowledged.
func (s *storm) auditSessions() map[string]map[string]string {
	s.t.Helper()
	found := s.hashes(space(s.merchant)+"session:", s.keeper)
	byOrder := map[string]string{}
	for id, fields := range found {
		order := orderOf(fields)
		if other, twice := byOrder[order]; twice {
			s.t.Errorf("%s made two sessions, %s and %s", order, id, other)
		}
		byOrder[order] = id
	}
	for _, o := range s.orders {
		if o.id != "" && byOrder[o.name()] != o.id {
			s.t.Errorf("%s was acknowledged as %s, and Redis has %q", o.name(), o.id, byOrder[o.name()])
		}
	}
	return found
}

// orderOf is the order of a session: what never changes of it is in one field, and the order is the last of that, behind
// the merchant's name, before which stands how long the name is.
func orderOf(fields map[string]string) string {
	record, ok := session.ParseRecord(fields["f"])
	if !ok {
		return fields["f"]
	}
	return record.OrderRef
}

// eventsOf returns the ids of the events that there must have been, by what Redis holds of the sessions. That each
// was recorded once is seen by the sequences, for a record is removed when its event is delivered.
func (s *deployment) eventsOf(sessions map[string]map[string]string) []string {
	s.t.Helper()
	var all []string
	for text, fields := range sessions {
		id, err := session.ParseID(text)
		if err != nil {
			s.t.Fatal(err)
		}
		var events []string
		if session.Status(fields["s"]).Final() {
			events = append(events, feed.SessionEventID(id, feed.MarkEnded))
		}
		for field := range fields {
			if payment, refused := strings.CutPrefix(field, "l:"); refused {
				rail, ref, _ := session.ParseScoped(payment)
				events = append(events, feed.SessionEventID(id, feed.MarkLate(rail, ref)))
			}
		}
		if sequence, _ := strconv.Atoi(fields["q"]); sequence != len(events) {
			s.t.Errorf("%s %s: %d events are recorded, want %v", text, fields["s"], sequence, events)
		}
		all = append(all, events...)
	}
	return all
}

// hashes are those whose keys begin so, in any of the servers, by the rest of their keys.
func (s *deployment) hashes(prefix string, servers ...*redis.Client) map[string]map[string]string {
	s.t.Helper()
	found := map[string]map[string]string{}
	for _, server := range servers {
		keys := server.Scan(s.t.Context(), 0, prefix+"*", 1000).Iterator()
		for keys.Next(s.t.Context()) {
			fields, err := server.HGetAll(s.t.Context(), keys.Val()).Result()
			s.must(err)
			found[strings.TrimPrefix(keys.Val(), prefix)] = fields
		}
		s.must(keys.Err())
	}
	return found
}
