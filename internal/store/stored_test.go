package store_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// testdata/stored has a directory for each release, and "next" for the code as it is: what the release writes to Redis (redis.json),
// and what it reads there (read.json). The redis.json of a release never changes.
var updateStored = flag.Bool("update-stored", false, "write testdata/stored/next")

const nextRelease = "next"

// stored is one key of Redis. Fields and members are in their order, those of a hash as name and value.
type stored struct {
	Key, Type string
	Values    []string
}

// state is all that is in a Redis, and what its caller knows.
type state struct {
	WrittenAt time.Time
	// Sessions are the ids of the sessions: completed, failed, held, and expired.
	Sessions []string
	// Cursor is a cursor of the feed, as a consumer keeps it.
	Cursor string
	Keys   []stored
}

// The callers of the state.
var (
	storedMerchant = admission.Request{
		MerchantID: "abcdefgh2345", KeyID: "2yylmkzckvhj", Order: published.Order{Issued: 5, Revision: 5}, Digest: apikey.NewDigest("stored"), Accepted: true,
		Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
	// The directory does not know the digest of these callers. The override accepts that of one, and has revoked the other.
	acceptedByOverride = with(storedMerchant, func(a *admission.Request) {
		a.KeyID, a.Accepted, a.Digest = "acceptedkey2", false, apikey.NewDigest("rotated")
	})
	revokedByOverride = with(storedMerchant, func(a *admission.Request) { a.KeyID = "revokedkey22" })
)

const distantFuture = "4102444800000" // the year 2100

var (
	storedRail   = session.NewRail("system:serviceaccount:rails:bank")
	storedCharge = with(newSession(), func(n *store.NewSession) {
		n.EmitCreated = true
		n.Charge = session.Charge{AmountCents: 1250, OrderRef: "table 7 <b>&\"crème\"", TaxCents: new(int64(110)), TipCents: new(int64(0)), CustomerEmail: "ada@example.com", Description: "2 flat whites", ReturnURL: "https://shop.example/orders?id=%7B{sessionId}"}
		n.TimeZone = "Europe/Berlin"
	})
	storedRefund  = session.Refund{Rail: storedRail, Ref: "refund-1", PaymentRef: "paid", AmountCents: 500}
	storedLate    = session.Payment{Rail: storedRail, Ref: "late", Outcome: session.Completed, AmountCents: 900, Currency: "GBP", PaidAt: time.UnixMilli(1_700_000_000_123)}
	storedFailure = session.Payment{Rail: storedRail, Ref: "failed", Outcome: session.Failed, AmountCents: 1250}
)

// writeState makes every kind of stored text in an empty Redis.
func writeState(t *testing.T, server *redistest.Server) state {
	t.Helper()
	s, c := storedServices(t, server), client(t, server)
	request := with(storedCharge, func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	create := func(request store.NewSession) session.ID { return mustCreate(t, s, storedMerchant, request).Session.ID }

	completed, failed, held := create(request), create(newSession()), create(newSession())
	expired := create(with(newSession(), func(n *store.NewSession) { n.Lifetime = time.Millisecond; n.Currency = "USD"; n.Charge.OrderRef = "" }))
	must(t, second(s.Settle(t.Context(), completed, session.Payment{Rail: storedRail, Ref: "paid", Outcome: session.Completed, AmountCents: 1250, PaidAt: time.UnixMilli(1_700_000_000_456)})))
	must(t, second(s.Refund(t.Context(), completed, storedRefund)))
	must(t, third(s.RequestRefund(t.Context(), storedMerchant, completed, asking(t, "refund-1001", 100))))
	must(t, second(s.Settle(t.Context(), completed, storedLate)))
	must(t, second(s.Settle(t.Context(), failed, with(storedFailure, func(p *session.Payment) { p.Reason = "no funds" }))))
	must(t, second(s.Hold(t.Context(), held, store.Hold{Rail: storedRail, Ref: "holding", Duration: time.Minute})))
	must(t, second(s.Settle(t.Context(), held, session.Payment{Rail: "another", Ref: "failed", Outcome: session.Failed, AmountCents: 1250})))
	must(t, second(s.Settle(t.Context(), held, session.Payment{Rail: "another", Ref: "mismatch", Outcome: session.Completed, AmountCents: 1})))
	eventually(t, "the session has expired", func() bool {
		story, err := s.ReadStory(t.Context(), expired)
		return err == nil && story.Session.Status == session.Expired
	})
	must(t, second(s.Settle(t.Context(), expired, with(storedLate, func(p *session.Payment) { p.Currency = "" }))))
	key := merchantTag(storedMerchant.MerchantID) + "session:" + held.String()
	must(t, c.HSet(t.Context(), key, "x", distantFuture, "h", distantFuture+" "+storedRail.Scope("holding")).Err())

	must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{
		Ref: keyRef(acceptedByOverride), Order: published.Order{Issued: 7, Revision: 9},
		Accepted: []keystate.Accepted{{Digest: apikey.NewDigest("current")}, {Digest: acceptedByOverride.Digest, Until: time.UnixMilli(4102444800000)}},
	}))
	must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(revokedByOverride), Order: published.Order{Issued: 7, Revision: 9}}))
	bucket := session.MerchantBucket(storedMerchant.MerchantID)
	must(t, second(s.Admit(t.Context(), storedMerchant)))
	must(t, second(s.Keys.LastUses(t.Context(), bucket, []string{storedMerchant.KeyID}, time.Time{})))
	must(t, s.Blocked.Add(t.Context(), storedMerchant.MerchantID, map[string]int64{"192.0.2.0/24": 7}))

	rotation := feed.KeyRotation{KeyID: storedMerchant.KeyID, Prefix: "mk_live_abcd", Generation: 3, Cause: "API"}
	must(t, second(s.RecordRotation(t.Context(), feed.NewKeyRotated(storedMerchant.MerchantID, "Acme Coffee", rotation, rotatedAt), rotatedAt, feed.History{})))
	test := feed.NewWebhookTest(storedMerchant.MerchantID, "Acme Coffee", "monday", rotatedAt)
	must(t, second(s.RecordTest(t.Context(), test)))
	asked := feed.NewWebhookTest(storedMerchant.MerchantID, "Acme Coffee", "a person", rotatedAt)
	must(t, second(s.SendWebhookTest(t.Context(), asked)))
	asked.TestMode = true
	must(t, s.AnswerWebhookTest(t.Context(), asked, "target", outbox.Attempt{Reason: "delivered", Answer: "200", Took: time.Second}))

	leased, err := s.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Minute, Limit: 100})
	must(t, err)
	slices.SortFunc(leased.Leases, func(a, b outbox.Lease) int {
		return cmp.Or(strings.Compare(string(a.Event.Kind), string(b.Event.Kind)), a.Event.OccurredAt.Compare(b.Event.OccurredAt))
	})
	for _, lease := range leased.Leases {
		failure := outbox.Failure{
			Details: outbox.Details{Reason: "http", Answer: "500", Merchant: "shops/acme"}, Retry: time.Hour, Target: outbox.Target{ID: "target", Generation: 4}, FailingLimit: time.Hour,
			Health: "HTTPError", Took: time.Second,
		}
		if lease.Event.Kind == "session.failed" {
			failure.Retry = -1
		}
		must(t, second(s.RecordFailure(t.Context(), lease, failure)))
	}
	_, page, err := s.Feed(t.Context(), storedMerchant, feed.Cursor{}, 2)
	must(t, err)
	return state{
		WrittenAt: leased.Now, Sessions: []string{completed.String(), failed.String(), held.String(), expired.String()}, Cursor: page.Cursor.String(), Keys: dump(t, c),
	}
}

func storedServices(t *testing.T, server *redistest.Server) *services {
	t.Helper()
	return storetest.OpenWith(t, server.URL(), store.Options{Receipts: true})
}

// readState reads all that was stored, as a release finds it that was just installed.
func readState(t *testing.T, server *redistest.Server, stored state) map[string]any {
	t.Helper()
	s, c := storedServices(t, server), client(t, server)
	restore(t, c, stored.Keys)
	bucket := session.MerchantBucket(storedMerchant.MerchantID)
	read := map[string]any{}
	keep := func(name string, value any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		read[name] = value
	}
	uses, err := s.Keys.LastUses(t.Context(), bucket, []string{storedMerchant.KeyID}, stored.WrittenAt.Add(-time.Hour))
	keep("last use", uses.Keys[storedMerchant.KeyID].Latest(), err)
	keep("uses are complete since", uses.RecordingSince, nil)
	var ids []session.ID
	for _, text := range stored.Sessions {
		id, err := session.ParseID(text)
		must(t, err)
		ids = append(ids, id)
		story, err := s.ReadStory(t.Context(), id)
		keep("story of "+text, story, err)
		payments, err := s.Payments(t.Context(), id)
		keep("payments of "+text, payments, err)
	}
	completed, held, expired := ids[0], ids[2], ids[3]

	_, page, err := s.Feed(t.Context(), storedMerchant, feed.Cursor{}, 100)
	keep("corrupt entries of the feed", page.Corrupt, err)
	var bodies []json.RawMessage
	for _, entry := range page.Entries {
		body, err := feed.Encode(entry.Event)
		must(t, err)
		bodies = append(bodies, body)
	}
	keep("feed", bodies, nil)
	_, err = feed.ParseCursor(storedMerchant.MerchantID, stored.Cursor)
	keep("cursor", nil, err)
	events := map[string]json.RawMessage{}
	for _, key := range stored.Keys {
		if _, id, is := strings.Cut(key.Key, "}:event:"); is {
			event, err := outbox.ParseEvent(id, c.HGetAll(t.Context(), key.Key).Val())
			keep("event "+id, nil, err)
			body, err := feed.Encode(event)
			must(t, err)
			events[id] = body
		}
	}
	keep("events", events, nil)
	backlog, err := s.Backlog(t.Context(), bucket)
	keep("events in the queue", backlog.Due, err)

	overrides, _, err := s.Keys.Overrides(t.Context(), keyRef(acceptedByOverride), keyRef(revokedByOverride))
	keep("overrides", overrides, err)
	_, err = s.Admit(t.Context(), acceptedByOverride)
	keep("the override accepts", nil, err)
	_, err = s.Admit(t.Context(), revokedByOverride)
	keep("the override refuses", errText(err), nil)
	dead, err := s.DeadLetters(t.Context(), outbox.DeadLetterFilter{})
	keep("dead letters", len(dead), err)
	endpoints, err := s.Endpoints(t.Context(), bucket, storedMerchant.MerchantID)
	keep("endpoints", endpoints.States, err)
	attempts, err := s.Attempts(t.Context(), storedMerchant.MerchantID, stored.WrittenAt)
	keep("attempts", attempts, err)

	request := with(storedCharge, func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	_, replay, err := s.CreateSession(t.Context(), storedMerchant, request)
	keep("a repeated charge", map[string]any{"replayed": replay.Replayed, "mismatch": replay.Mismatch, "id": replay.Session.ID.String()}, err)
	_, orders, err := s.OrderSessions(t.Context(), storedMerchant, storedCharge.Charge.OrderRef)
	keep("sessions of the order", len(orders.Sessions), err)
	late, err := s.Settle(t.Context(), completed, storedLate)
	keep("a repeated late payment", late, err)
	again, err := s.Settle(t.Context(), expired, with(storedLate, func(p *session.Payment) { p.Currency = "USD" }))
	keep("the same in the session's currency", again, err)
	refunded, err := s.Refund(t.Context(), completed, storedRefund)
	keep("a repeated refund", refunded, err)
	more, err := s.Refund(t.Context(), completed, with(storedRefund, func(r *session.Refund) { r.Ref, r.AmountCents = "refund-2", 751 }))
	keep("a refund of more than the rest", []any{more, errText(err)}, nil)
	_, err = s.Hold(t.Context(), held, store.Hold{Rail: "another", Ref: "third", Duration: time.Minute})
	keep("a hold of another payment", errText(err), nil)
	failure, err := s.Settle(t.Context(), held, session.Payment{Rail: "another", Ref: "failed", Outcome: session.Failed, AmountCents: 1250})
	keep("a repeated failure", failure, err)
	receipts, err := s.Receipts.Lease(t.Context(), bucket, time.Minute, 10)
	keep("receipts", len(receipts), err)
	for _, leased := range receipts {
		receipt, err := s.Receipts.Read(t.Context(), leased)
		keep("receipt", receipt.Session, err)
	}
	owed, err := s.CountOwed(t.Context(), []time.Duration{0})
	keep("refunds owed", owed, err)
	return read
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Every release reads what each earlier one has stored.
func TestStored_Releases(t *testing.T) {
	directories, err := filepath.Glob(filepath.Join("testdata", "stored", "*"))
	must(t, err)
	for _, directory := range directories {
		t.Run(filepath.Base(directory), func(t *testing.T) {
			server := redistest.Start(t)
			var want any
			readJSON(t, filepath.Join(directory, "read.json"), &want)
			got := asJSON(t, readState(t, server, loadState(t, directory)))
			if missing := lacks(want, got, ""); len(missing) > 0 {
				t.Errorf("not read as that release read it:\n%s", strings.Join(missing, "\n"))
			}
		})
	}
}

// The bytes of each release are kept, so that its successor cannot forget them.
func TestStored_EveryReleaseIsKept(t *testing.T) {
	changelog, err := os.ReadFile(repository.Path("CHANGELOG.md"))
	must(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^## \[(\d[^]]*)]`).FindAllSubmatch(changelog, -1) {
		version := string(heading[1])
		for _, directory := range []string{filepath.Join("testdata", "stored", version), repository.Path("api", "published", "testdata", version)} {
			if _, err := os.Stat(directory); err != nil {
				t.Errorf("%s has no stored bytes; see \"Stored formats\" in CONTRIBUTING.md: %v", version, err)
			}
		}
	}
}

// growing are the stored texts that may grow: by key, or for a hash by key and field.
var growing = regexp.MustCompile(`^(session: (f|h|[abl]:.*)|idem:|key:|used:|uses|event: b|feed: e|endpoint: .*attempts.*)`)

// grow adds a field to a text, or to each of its lines.
func grow(text string) string {
	const added = "\tadded 1234"
	lines := strings.TrimSuffix(text, "\n")
	return strings.ReplaceAll(lines, "\n", added+"\n") + added + text[len(lines):]
}

// A release reads what a later one stores that adds a field to every text, and to every hash.
func TestStored_GrownTexts(t *testing.T) {
	directory := filepath.Join("testdata", "stored", nextRelease)
	grown := loadState(t, directory)
	count := 0
	for _, key := range grown.Keys {
		_, name, _ := strings.Cut(key.Key, "}:")
		kind, _, _ := strings.Cut(name, ":")
		if kind != name {
			kind += ":"
		}
		pairs := key.Type == "hash" || key.Type == "stream"
		for i := range key.Values {
			subject := kind
			if pairs && i%2 == 1 {
				subject += " " + key.Values[i-1]
			}
			if growing.MatchString(subject) && (!pairs || i%2 == 1) {
				key.Values[i] = grow(key.Values[i])
				count++
			}
		}
	}
	for i, key := range grown.Keys {
		if key.Type == "hash" {
			grown.Keys[i].Values = append(key.Values, "added", "later")
		}
	}
	grown.Cursor = growCursor(t, grown.Cursor)
	if count < 30 {
		t.Fatal("only", count, "texts have grown")
	}
	want := asJSON(t, readState(t, redistest.Start(t), loadState(t, directory)))
	got := asJSON(t, readState(t, redistest.Start(t), grown))
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-as it was +grown):\n%s", diff)
	}
}

// A change of what is stored needs new bytes in testdata, which every later release reads.
func TestStored_Format(t *testing.T) {
	written := writeState(t, redistest.Start(t))
	directory := filepath.Join("testdata", "stored", nextRelease)
	if *updateStored {
		writeJSON(t, filepath.Join(directory, "redis.json"), written)
		writeJSON(t, filepath.Join(directory, "read.json"), readState(t, redistest.Start(t), written))
	}
	if diff := gocmp.Diff(shape(t, loadState(t, directory)), shape(t, written)); diff != "" {
		t.Errorf("the stored format has changed. See %q in CONTRIBUTING.md (-testdata +written):\n%s", "Stored formats", diff)
	}
}

// anyTime is a time in seconds, milliseconds or microseconds of this century.
var anyTime = regexp.MustCompile(`1[0-9]{9}([0-9]{3}|[0-9]{6})?`)

// refundID is the id of a request for a refund, or the end of the id of its event.
var refundID = regexp.MustCompile(`rf_[0-9a-f]{24}|asked_[0-9a-f]{16}`)

// shape is a state without what differs each time: ids and times.
func shape(t *testing.T, s state) (keys []string) {
	t.Helper()
	for _, key := range s.Keys {
		values := slices.Clone(key.Values)
		for i := range values {
			for place, id := range s.Sessions {
				values[i] = strings.ReplaceAll(values[i], id[len(id)-18:], "<"+string(rune('A'+place))+">")
				key.Key = refundID.ReplaceAllString(strings.ReplaceAll(key.Key, id[len(id)-18:], "<"+string(rune('A'+place))+">"), "<refund>")
			}
			values[i] = anyTime.ReplaceAllString(refundID.ReplaceAllString(values[i], "<refund>"), "<time>")
		}
		if key.Type == "zset" {
			slices.Sort(values)
		}
		keys = append(keys, jsonText(t, stored{key.Key, key.Type, values}))
	}
	slices.Sort(keys)
	return keys
}

// dump returns all keys of a Redis but the limits, which live for a second.
func dump(t *testing.T, c *goredis.Client) (all []stored) {
	t.Helper()
	keys := c.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	for _, key := range keys {
		kind := c.Type(t.Context(), key).Val()
		var values []string
		switch {
		case strings.Contains(key, "}:rate:"):
			continue
		case kind == "hash":
			fields := c.HGetAll(t.Context(), key).Val()
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				values = append(values, name, fields[name])
			}
		case kind == "string":
			values = []string{c.Get(t.Context(), key).Val()}
		case kind == "list":
			values = c.LRange(t.Context(), key, 0, -1).Val()
		case kind == "zset":
			for _, member := range c.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				values = append(values, jsonText(t, member.Score)+" "+member.Member.(string))
			}
		case kind == "stream":
			for _, entry := range c.XRange(t.Context(), key, "-", "+").Val() {
				for name, value := range entry.Values {
					values = append(values, name, value.(string))
				}
			}
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		all = append(all, stored{key, kind, values})
	}
	return all
}

// restore puts the keys back. The entries of a stream get new ids, because the feed shows only what is younger than its history.
func restore(t *testing.T, c *goredis.Client, keys []stored) {
	t.Helper()
	for _, key := range keys {
		for i := 0; i < len(key.Values); i++ {
			var err error
			switch value := key.Values[i]; key.Type {
			case "hash":
				i++
				err = c.HSet(t.Context(), key.Key, value, key.Values[i]).Err()
			case "string":
				err = c.Set(t.Context(), key.Key, value, 0).Err()
			case "list":
				err = c.RPush(t.Context(), key.Key, value).Err()
			case "zset":
				score, member, _ := strings.Cut(value, " ")
				var at float64
				must(t, json.Unmarshal([]byte(score), &at))
				err = c.ZAdd(t.Context(), key.Key, goredis.Z{Score: at, Member: member}).Err()
			case "stream":
				i++
				err = c.XAdd(t.Context(), &goredis.XAddArgs{Stream: key.Key, Values: []string{value, key.Values[i]}}).Err()
			}
			must(t, err)
		}
	}
}

func loadState(t *testing.T, directory string) (loaded state) {
	t.Helper()
	readJSON(t, filepath.Join(directory, "redis.json"), &loaded)
	return loaded
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(data, into))
}

func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	data, err := json.MarshalIndent(value, "", "\t")
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, append(data, '\n'), 0o644))
}

func jsonText(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	must(t, err)
	return string(data)
}

// asJSON returns a value as encoding/json reads it back.
func asJSON(t *testing.T, value any) (read any) {
	t.Helper()
	must(t, json.Unmarshal([]byte(jsonText(t, value)), &read))
	return read
}

// lacks lists what is in want and not, or otherwise, in got, which may have more fields.
func lacks(want, got any, path string) (missing []string) {
	fields, isObject := want.(map[string]any)
	others, both := got.(map[string]any)
	if !isObject || !both {
		if wanted, ok := want.([]any); ok {
			if list, ok := got.([]any); ok && len(list) == len(wanted) {
				for i := range wanted {
					missing = append(missing, lacks(wanted[i], list[i], path+"[]")...)
				}
				return missing
			}
		}
		if !gocmp.Equal(want, got) {
			missing = append(missing, fmt.Sprintf("%s: want %v, got %v", path, want, got))
		}
		return missing
	}
	for name, value := range fields {
		missing = append(missing, lacks(value, others[name], path+"."+name)...)
	}
	return missing
}

// growCursor returns a cursor with a field that a later release adds.
func growCursor(t *testing.T, cursor string) string {
	t.Helper()
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	must(t, err)
	return base64.RawURLEncoding.EncodeToString(append(plain, "\tadded later"...))
}
